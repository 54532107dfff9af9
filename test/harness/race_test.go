//go:build race

package harness

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A race is also found in a process that is killed afterwards.
func TestRacesOfTheKilled(t *testing.T) {
	dir := t.TempDir()
	racy := exec.Command(os.Args[0], "-test.run=^$")
	racy.Env = append(os.Environ(), append(raceOptions(dir), "NUMALET_RACY=yes")...)
	if err := racy.Start(); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the race is reported", func() error {
		if !strings.Contains(races(dir), "racyWrite") {
			return os.ErrNotExist
		}
		return nil
	})
	_ = racy.Process.Kill() // it may have ended already
	_ = racy.Wait()
	if found := races(dir); !strings.Contains(found, "WARNING: DATA RACE") {
		t.Errorf("after its end there is %q", found)
	}
	if found := races(t.TempDir()); found != "" {
		t.Errorf("where nothing is there is %q", found)
	}
}

var racyCount int

func racyWrite() { racyCount++ }

// TestMain is also the process that TestRacesOfTheKilled starts, which sets NUMALET_RACY.
func TestMain(m *testing.M) {
	if os.Getenv("NUMALET_RACY") != "" {
		go racyWrite()
		racyWrite()
		time.Sleep(Patience)
	}
	os.Exit(m.Run())
}
