package kubeflags

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// answerLimit is a round tripper that limits the wait for the headers of a response, and ends the wait with the
// command: some requests of client libraries, such as those for the served kinds, have no context. It
// does not limit the body, so that a watch continues.
type answerLimit struct {
	http.RoundTripper

	// command is the context of the command.
	command context.Context
	// limit is the maximum wait; 0 waits without a limit.
	limit time.Duration
}

// noAnswerError is the error of a request without a response in time.
type noAnswerError struct{ limit time.Duration }

func (e noAnswerError) Error() string {
	return fmt.Sprintf("the server did not answer within %s (--request-timeout)", e.limit)
}

// Timeout marks the error for [net/url.Error.Timeout].
func (noAnswerError) Timeout() bool { return true }

// RoundTrip sends a request. It returns the cause if the command ended, and an error with a method Timeout if no
// response came in time.
func (a answerLimit) RoundTrip(request *http.Request) (*http.Response, error) {
	// The response's body needs the context after the return, so it ends with the request's or the command's.
	ctx, cancel := context.WithCancelCause(request.Context())
	stop := context.AfterFunc(a.command, func() { cancel(context.Cause(a.command)) })
	if a.limit > 0 {
		timer := time.AfterFunc(a.limit, func() { cancel(noAnswerError{a.limit}) })
		defer timer.Stop()
	}
	response, err := a.RoundTripper.RoundTrip(request.WithContext(ctx))
	if err == nil {
		return response, nil
	}
	if ctx.Err() != nil && request.Context().Err() == nil {
		err = context.Cause(ctx)
	}
	stop()
	cancel(nil)
	return nil, err
}
