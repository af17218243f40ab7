package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"switchboard/internal/refusal"
)

// How the program ends; scripts switch on it. exitStatuses documents them.
const (
	exitFailed    exitError = 1
	exitUsage     exitError = 2
	exitSignedOut exitError = 3
	exitNotFound  exitError = 4
	exitRefused   exitError = 5
)

const exitStatuses = `Exit status: 0 done; 1 it failed; 2 the command line is wrong; 3 not signed in, or the token is not good any more;
4 there is no such thing; 5 refused, and the message says why.`

// usageError is about the command line, not about what it asks for.
type usageError struct{ error }

// Unwrap gives what is wrong.
func (e usageError) Unwrap() error { return e.error }

// exitStatus is how the program ends after err.
func exitStatus(err error) exitError {
	var code exitError
	var usage usageError
	switch {
	case errors.As(err, &code):
		return code
	case errors.As(err, &usage):
		return exitUsage
	}
	switch refusal.CodeOf(err) {
	case refusal.Unauthenticated:
		return exitSignedOut
	case refusal.NotFound:
		return exitNotFound
	case refusal.Internal, refusal.Unavailable:
		return exitFailed
	}
	return exitRefused
}

// tellUsage has every command's own judgement of its arguments and of its flags
// together count as usage. The library judges flags that exclude or need one another
// later, where what it says cannot be told from what the command itself says.
func tellUsage(c *cobra.Command) {
	judge := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		if judge != nil {
			if err := judge(c, args); err != nil {
				return usageError{err}
			}
		}
		if err := cmp.Or(c.ValidateRequiredFlags(), c.ValidateFlagGroups()); err != nil {
			return usageError{fmt.Errorf("%w; see: %s --help", err, c.CommandPath())}
		}
		return nil
	}
	for _, sub := range c.Commands() {
		tellUsage(sub)
	}
}
