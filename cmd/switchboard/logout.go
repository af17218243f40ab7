package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
)

func newLogoutCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "logout [URL of your instance]",
		Short: "Forget the API token that login kept here",
		Long: `Deletes what switchboard login kept, so that the commands that look after your own account are signed out on this machine. It needs no connection,
and where nothing is kept it has nothing to do. With a URL, only what is kept for that instance is forgotten.

No token ends a token: who has a copy can use it until you end it in the settings of your instance, in the browser. The keys of your grants
are another thing; those are deleted with switchboard friend leave.`,
		Example: "  switchboard logout\n  switchboard logout https://todo.example",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			instance := ""
			if len(args) == 1 {
				var err error
				if instance, err = instanceURL(args[0]); err != nil {
					return usageError{err}
				}
			}
			told := c.ErrOrStderr()
			kept, err := forgetAccount(instance)
			switch {
			case err != nil:
				return err
			case kept == nil:
				fmt.Fprintln(told, "No sign-in is kept here.")
			case instance != "" && kept.URL != instance:
				fmt.Fprintf(told, "No sign-in at %s is kept here; the one that is, at %s, stays.\n", plain(instance), plain(kept.URL))
			case kept.URL == "":
				fmt.Fprintln(told, "Signed out here. What was kept was damaged; look through the API tokens in the settings of your instance.")
			default:
				fmt.Fprintf(told, "Signed out here. The token itself still works where there is a copy of it; end %s at %s/settings\n", plain(kept.called()), plain(kept.URL))
			}
			if os.Getenv("SWITCHBOARD_URL") != "" && os.Getenv("SWITCHBOARD_TOKEN") != "" {
				fmt.Fprintln(told, "SWITCHBOARD_URL and SWITCHBOARD_TOKEN are set, and commands go on using them.")
			}
			return nil
		},
	}
}

// forgetAccount deletes the account that is kept when it is at the instance, or
// anywhere where none is named. It returns what was kept, nil where nothing was.
func forgetAccount(instance string) (*account, error) {
	path, err := accountFile()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var a account
	if err := json.Unmarshal(text, &a); err != nil && instance != "" {
		return nil, fmt.Errorf("%s is damaged, so it does not say where it signs in; switchboard logout without a URL deletes it: %w", path, err)
	}
	if instance != "" && a.URL != instance {
		return &a, nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &a, nil
}

// called is how the token is found in the settings of its instance.
func (a account) called() string {
	if a.Name == "" {
		return "it"
	}
	return fmt.Sprintf("%q", a.Name)
}
