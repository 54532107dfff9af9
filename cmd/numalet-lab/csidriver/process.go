package csidriver

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/internal/child"
)

// variable has the configuration of a driver, as JSON, in the environment of its process.
const variable = "NUMALET_CSI_DRIVER"

// Main runs a driver and ends the process, if the process was started as one (Process). Programs
// that use Process call it first in main or TestMain.
func Main() {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	var c Config
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		var d *Driver
		if d, err = New(c); err == nil {
			err = d.Run(ctx)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "csidriver:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Process returns this program as the process of a driver, which does not run yet. It can be killed
// and started again.
func Process(c Config) (*child.Server, error) {
	raw, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Dir, 0o750); err != nil {
		return nil, err
	}
	return &child.Server{Program: program, Env: []string{variable + "=" + string(raw)},
		Log: filepath.Join(c.Dir, "log")}, nil
}
