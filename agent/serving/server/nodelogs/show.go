package nodelogs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os/exec"
	"strings"
	"time"
)

// journalTime bounds how long journalctl may run.
const journalTime = 30 * time.Second

// show answers with a file, or with the services' logs from the journal or from files of their
// names.
func (c Config) show(w http.ResponseWriter, r *http.Request, q query) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if q.file != "" {
		if err := c.copy(w, q.file); err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
		}
		return
	}
	found, err := c.journal(w, r, q)
	if err == nil && !found {
		err = c.ofServices(w, q.services)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
	}
}

// copy writes a file. Errors occur only before the first byte.
func (c Config) copy(w io.Writer, name string) error {
	f, err := folder{c.Root}.Open(strings.TrimPrefix(name, "/"))
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return fmt.Errorf("query: %s is no file", name)
	}
	_, _ = io.Copy(w, f) // the answer has begun, so an error can no longer be reported
	return nil
}

// ofServices writes the log files of services.
func (c Config) ofServices(w io.Writer, services []string) error {
	for _, name := range services {
		var err error
		for _, file := range []string{name, name + ".log", name + "/" + name + ".log"} {
			if err = c.copy(w, file); err == nil {
				break
			}
		}
		if err != nil {
			return fmt.Errorf("query: no logs of %s are in the journal, nor in a file of that "+
				"name below %s", name, c.Root)
		}
	}
	return nil
}

// journal writes the services' entries in the journal; false: there are none.
func (c Config) journal(w http.ResponseWriter, r *http.Request, q query) (bool, error) {
	program := c.Journal
	if program == "" {
		program = "journalctl"
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return false, nil // a host without systemd
	}
	out := &lines{w: w}
	cmd := exec.CommandContext(r.Context(), path, q.arguments()...)
	cmd.Stdout = out
	cmd.WaitDelay = time.Second
	limit := time.AfterFunc(journalTime, func() { _ = cmd.Cancel() })
	defer limit.Stop()
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, fs.ErrNotExist) && !out.wrote {
		return false, fmt.Errorf("read the journal: %w", err)
	}
	return out.wrote, nil
}

// lines passes on journalctl's output, without its message that there are no entries.
type lines struct {
	w     io.Writer
	wrote bool
}

func (l *lines) Write(p []byte) (int, error) {
	if !l.wrote && bytes.HasPrefix(p, []byte("-- No entries --")) {
		return len(p), nil
	}
	l.wrote = true
	return l.w.Write(p)
}
