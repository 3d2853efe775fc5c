package ui

import (
	"io"
	"os"

	"golang.org/x/term"
)

// IO are the streams of a command.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
}

// Std returns the streams of the process.
func Std() IO { return IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr} }

// Stdout returns the screen for results.
func (s IO) Stdout() *Screen { return NewScreen(s.Out) }

// Stderr returns the screen for errors and progress.
func (s IO) Stderr() *Screen { return NewScreen(s.Err) }

// Screen is a writer and its capabilities. If only Writer is set, the Screen is a pipe.
type Screen struct {
	io.Writer
	// Interactive screens can move the cursor.
	Interactive bool
	// Colour reports whether to use colour.
	Colour bool
	// Size returns the columns and rows; zero when they are not known.
	Size func() (width, height int)
}

// NewScreen detects the capabilities of a writer. Only a terminal has any.
func NewScreen(w io.Writer) *Screen {
	s := &Screen{Writer: w, Size: func() (int, int) { return 0, 0 }}
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return s
	}
	s.Interactive, s.Colour = true, os.Getenv("NO_COLOR") == ""
	s.Size = func() (int, int) {
		width, height, err := term.GetSize(int(file.Fd()))
		if err != nil {
			return 0, 0
		}
		return width, height
	}
	return s
}

// width returns the columns to cut lines to; 0 means not to cut.
func (s *Screen) width() int {
	if !s.Interactive || s.Size == nil {
		return 0
	}
	width, _ := s.Size()
	return width
}

// Colour is a foreground colour of the terminal's own palette.
type Colour string

// The colours of messages.
const (
	Plain  Colour = ""
	Green  Colour = "\x1b[32m" // good
	Red    Colour = "\x1b[31m" // failed
	Yellow Colour = "\x1b[33m" // not known yet
	Faint  Colour = "\x1b[2m"  // unimportant
)

// Paint colours text if the screen has colour.
func (s *Screen) Paint(colour Colour, text string) string {
	if !s.Colour || colour == Plain || text == "" {
		return text
	}
	return string(colour) + text + "\x1b[m"
}
