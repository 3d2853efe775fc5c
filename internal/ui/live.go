package ui

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// resizePoll is the interval at which a Live table checks the size of the terminal. Signals
// would be faster, but not every system has them, and they belong to the program.
const resizePoll = 250 * time.Millisecond

// Live is a table with changing rows. On a terminal it is redrawn in place; in a pipe each row
// is printed when it is new or has changed. It is safe for concurrent use.
type Live struct {
	mu     sync.Mutex
	screen *Screen
	canvas canvas
	table  Table
	footer string
	size   [2]int // the terminal's when the table was drawn
	widths []int
	shown  map[string]bool // rows of the last table, in a pipe
	stop   chan struct{}
	idle   sync.WaitGroup
}

// NewLive starts a table. It must be closed.
func NewLive(screen *Screen) *Live {
	l := &Live{screen: screen, canvas: canvas{screen: screen}, stop: make(chan struct{})}
	if screen.Interactive {
		l.idle.Go(l.followSize)
	}
	return l
}

// Set replaces the table and the line below it. A footer is shown on terminals only; "" means none.
// Set returns an error if it cannot write to the screen, as Println and Close do.
func (l *Live) Set(table Table, footer string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.table, l.footer = table, Clean(footer)
	if l.screen.Interactive {
		return l.draw()
	}
	return l.printChanged()
}

// Println prints a line above the table, or returns the error of writing it.
func (l *Live) Println(text string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.screen.Interactive {
		return l.canvas.print(Clean(text))
	}
	_, err := io.WriteString(l.screen, Clean(text)+"\n")
	return err
}

// Close ends the table. On a terminal it leaves the complete table, including rows that did not
// fit. It returns an error if it cannot write to the terminal.
func (l *Live) Close() error {
	close(l.stop)
	l.idle.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.screen.Interactive || l.table.Header == nil {
		return nil
	}
	if err := l.canvas.clear(); err != nil {
		return err
	}
	return l.table.Print(l.screen)
}

func (l *Live) followSize() {
	ticker := time.NewTicker(resizePoll)
	defer ticker.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-ticker.C:
		}
		l.mu.Lock()
		if l.size != l.currentSize() {
			_ = l.draw() // the next Set reports an error of the terminal
		}
		l.mu.Unlock()
	}
}

func (l *Live) currentSize() [2]int {
	width, height := l.screen.Size()
	return [2]int{width, height}
}

func (l *Live) draw() error {
	if l.table.Header == nil {
		return nil
	}
	l.size = l.currentSize()
	room := l.canvas.height()
	var below []string
	if l.footer != "" {
		below = []string{l.footer}
	}
	if !l.table.NoHeader {
		room--
	}
	table := l.table
	if len(table.Rows) > room-len(below) {
		kept := fit(table, max(room-len(below)-1, 0))
		hidden := len(table.Rows) - len(kept)
		table.Rows = kept
		below = append([]string{l.screen.Paint(Faint, fmt.Sprintf("%s and %d more", ellipsis, hidden))}, below...)
	}
	var widths []int
	lines := append(table.lay(l.screen, &widths), below...)
	return l.canvas.draw(lines[max(0, len(lines)-l.canvas.height()):])
}

// fit selects n rows to show. It removes ready rows first, from the end.
func fit(table Table, n int) [][]string {
	rows := slices.Clone(table.Rows)
	ready := slices.Index(table.Header, "READY")
	for i := len(rows) - 1; i >= 0 && ready >= 0 && len(rows) > n; i-- {
		if ready < len(rows[i]) && rows[i][ready] == "True" {
			rows = slices.Delete(rows, i, i+1)
		}
	}
	return rows[:min(n, len(rows))]
}

// printChanged prints the rows that were not in the last table, and the header
// before the first of them.
func (l *Live) printChanged() error {
	changed := Table{Header: l.table.Header, NoHeader: l.table.NoHeader || l.shown != nil}
	now := map[string]bool{}
	for _, row := range l.table.Rows {
		key := strings.Join(row, "\x00")
		if !l.shown[key] {
			changed.Rows = append(changed.Rows, row)
		}
		now[key] = true
	}
	if len(now) == 0 && l.shown == nil {
		return nil
	}
	l.shown = now
	lines := changed.lay(l.screen, &l.widths)
	if len(lines) == 0 {
		return nil
	}
	_, err := io.WriteString(l.screen, strings.Join(lines, "\n")+"\n")
	return err
}
