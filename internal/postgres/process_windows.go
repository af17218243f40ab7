package postgres

import (
	"errors"
	"os"
	"os/exec"
)

var errWindows = errors.New("the development server does not run on Windows: set SWITCHBOARD_DATABASE_URL to a running PostgreSQL, or use WSL")

type account struct{ name string }

func serverAccount() (account, error) { return account{}, errWindows }
func (account) reaches(string) bool   { return true }
func (account) take(string) error     { return errWindows }
func (account) dress(*exec.Cmd)       {}
func alive(int) bool                  { return false }
func freePort() (uint32, error)       { return 0, errWindows }

var (
	signalFast      = os.Interrupt
	signalImmediate = os.Kill
)

type watchdog struct{}

func watch(int, [2]string) (*watchdog, error) { return nil, errWindows }
func (*watchdog) dismiss()                    {}
