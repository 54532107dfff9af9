package dracheck

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/numalet/numalet/deviceplugin/check"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/dratest"
)

// asDriver is the environment variable with what is wrong with a driver as which the test program runs.
const asDriver = "NUMALET_TEST_DRIVER"

func TestMain(m *testing.M) {
	if wrong, is := os.LookupEnv(asDriver); is {
		if err := serve(wrong, os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serve is a driver until SIGTERM.
func serve(wrong, dir, registry string) error {
	cfg := dratest.Config{Dir: dir, Registry: registry}
	switch wrong {
	case "forgets":
		cfg.Prepare = func(ctx context.Context, c dra.Claim) dra.Answer {
			a := dratest.OneDevice(ctx, c)
			a.Devices[0].ShareID = fmt.Sprint(os.Getpid())
			return a
		}
	case "panics":
		cfg.Unprepare = func(_ context.Context, c dra.Claim) error {
			if c.UID != claims[0].UID && c.UID != claims[1].UID {
				go panic("a claim without a record")
				select {}
			}
			return nil
		}
	case "dies":
		return fmt.Errorf("it has no device")
	}
	d := dratest.New(cfg)
	for _, path := range []string{d.Endpoint, d.Socket} {
		_ = os.Remove(path) // of a killed one
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			return err
		}
		l.SetUnlinkOnClose(false)
		d.Serve(l)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	if wrong == "leaves" {
		return nil
	}
	if wrong == "stays" {
		time.Sleep(time.Hour)
	}
	d.Stop()
	return nil
}

// started checks a driver that the checks start.
func started(t *testing.T, wrong string) (check.Report, error) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "gpu.json"), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	return Run(t.Context(), Config{
		Command: fmt.Sprintf("env %s=%s %s {dir} {registry}", asDriver, wrong, program),
		Driver:  gpu, Claims: claims, CDI: []string{dir}, Patience: 3 * time.Second,
	})
}

// A driver that is started passes the checks of restarts, and fails the one of its mistake.
func TestStartedDrivers(t *testing.T) {
	for wrong, want := range map[string]string{
		"nothing": "", "panics": "unknown-claim", "forgets": "driver-restarts", "leaves": "", "stays": "stops",
	} {
		t.Run(wrong, func(t *testing.T) {
			t.Parallel()
			report, err := started(t, wrong)
			if err != nil {
				t.Fatal(err)
			}
			var bad []string
			for _, r := range report.Results {
				if r.Verdict == check.Failed {
					bad = append(bad, r.Name)
				}
			}
			if got := strings.Join(bad, " "); got != want {
				t.Errorf("failed %q, want %q", got, want)
			}
			if wrong == "panics" {
				for _, r := range report.Results {
					if r.Name == want && !strings.Contains(r.Happened, "a claim without a record") {
						t.Errorf("%s: %s", r.Name, r.Happened)
					}
				}
			}
			warned := report.Count(check.Warning)
			if wants := map[bool]int{true: 1}[wrong == "leaves"]; warned != wants {
				t.Errorf("%d warnings, want %d", warned, wants)
			}
			wants := 2 // slices, health
			if wrong == "panics" {
				wants++ // unprepares-again
			}
			if left := report.Count(check.Skipped); left != wants {
				t.Errorf("%d checks are left out", left)
			}
		})
	}
	if _, err := started(t, "dies"); err == nil || !strings.Contains(err.Error(), "it has no device") {
		t.Errorf("a driver that dies: %v", err)
	}
}

// The transcript has all messages between the checks and the driver, by check.
func TestTranscript(t *testing.T) {
	report, err := started(t, "nothing")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := check.WriteTranscript(&text, report.Transcript); err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, want := range []string{"check -> driver: GetInfo {", "driver -> check: GetInfo {",
		"--- check prepares\n", `check -> driver: NodePrepareResources {claims:{namespace:"team"`,
		"driver -> check: NodePrepareResources {", "--- check driver-restarts\n",
		"--- check unprepares\n", "check -> driver: NodeUnprepareResources {"} {
		n := strings.Index(text.String()[at:], want)
		if n < 0 {
			t.Fatalf("after %d bytes it has no %q:\n%s", at, want, text.String())
		}
		at += n
	}
}
