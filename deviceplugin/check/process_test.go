package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/test/scratch"
)

// acted is the environment variable that tells this executable which plugin to be.
const acted = "NUMALET_CHECK_PLUGIN"

func TestMain(m *testing.M) {
	if act := os.Getenv(acted); act != "" {
		if err := be(act, Dirs{Plugins: os.Args[1]}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// be runs a plugin until it is told to end.
func be(act string, dirs Dirs) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	p := good()
	switch act {
	case "good":
	case "panics":
		p.allocate = func(ctx context.Context, s *served, ids []string) (
			*v1beta1.ContainerAllocateResponse, error) {
			if len(ids) > 0 && ids[0] == "numalet-never-listed" {
				panic("no such device")
			}
			return plain(ctx, s, ids)
		}
	case "panics-without-ids":
		p.allocate = func(ctx context.Context, s *served, ids []string) (
			*v1beta1.ContainerAllocateResponse, error) {
			return plain(ctx, s, append([]string{ids[0]}, ids[1:]...))
		}
	case "panics-in-list":
		p.list = func(*served, int, lister) error {
			go panic("no memory for a list")
			select {}
		}
	case "ends-at-all":
		end := func() {
			fmt.Fprintln(os.Stderr, "the license is over, in process", os.Getpid())
			os.Exit(5)
		}
		p.allocate = func(ctx context.Context, s *served, ids []string) (
			*v1beta1.ContainerAllocateResponse, error) {
			if len(ids) == len(p.devices) {
				end()
			}
			return plain(ctx, s, ids)
		}
		p.answers = func(a *v1beta1.AllocateResponse) {
			if len(a.GetContainerResponses()) == 2 {
				end()
			}
		}
	case "renames":
		p.devices = invented(4)
		for _, d := range p.devices {
			d.ID = fmt.Sprint(d.GetID(), "-", os.Getpid())
		}
	case "deaf":
		ctx = context.Background()
	case "stale":
		p.stale = true
	case "leaves":
		p.keep = true
	case "exits":
		return errors.New("no hardware here")
	case "fails":
		defer os.Exit(3)
	case "ends":
		defer func() { // its connections end first
			time.Sleep(200 * time.Millisecond)
			fmt.Fprintln(os.Stderr, "the driver is gone")
			os.Exit(4)
		}()
		p.list = func(_ *served, _ int, to lister) error {
			err := to.Send(&v1beta1.ListAndWatchResponse{Devices: p.devices})
			time.AfterFunc(50*time.Millisecond, stop)
			<-ctx.Done()
			return err
		}
	}
	return p.run(ctx, dirs)
}

// command returns the command that runs this executable as a plugin.
func command(t *testing.T, act string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("env %s=%s '%s' {dir}", acted, act, self)
}

// Plugins in processes can crash, hang and leave things behind.
func TestProcesses(t *testing.T) {
	all := map[string]struct {
		failed, warned, says string
		patience             time.Duration
	}{
		"good":               {},
		"panics":             {failed: "unlisted-id", says: "no such device"},
		"panics-in-list":     {failed: firstList, says: "no memory for a list"},
		"panics-without-ids": {failed: "no-ids", says: "out of range"},
		"deaf":               {failed: "stops", says: "still ran", patience: hangs},
		"stale": {
			failed: "starts-after-kill", says: "p.sock: file exists",
		},
		"renames": {failed: "ids-stay", says: "it listed gpu-0-"},
		"leaves":  {warned: "socket-gone", says: "p.sock"},
		"fails":   {warned: "stops", says: "exit status 3"},
	}
	var mu sync.Mutex // guards reports
	reports := map[string]Report{}
	var group errgroup.Group
	group.SetLimit(atOnce)
	for act, tc := range all {
		group.Go(func() error {
			report, err := Run(t.Context(), Config{Command: command(t, act), Patience: tc.patience})
			mu.Lock()
			defer mu.Unlock()
			reports[act] = report
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for act, tc := range all {
		t.Run(act, func(t *testing.T) {
			report := reports[act]
			if tc.failed != "" {
				wantFailed(t, report, tc.failed, tc.says)
			} else if names := namesOf(report, Failed); len(names) > 0 {
				t.Errorf("it fails %q: %+v", names, find(report, names[0]))
			}
			var want []string
			if tc.warned != "" {
				want = []string{tc.warned}
			}
			if got := namesOf(report, Warning); !slices.Equal(got, want) {
				t.Errorf("it is warned of %q, want %q", got, want)
			}
			if w := find(report, tc.warned); tc.failed == "" &&
				!strings.Contains(w.Happened, tc.says) {
				t.Errorf("%s says %q", tc.warned, w.Happened)
			}
			if skipped := namesOf(report, Skipped); tc.failed != firstList && slices.Contains(skipped, "starts-after-kill") {
				t.Errorf("not made: %q", skipped)
			}
			if _, err := os.Lstat(report.Endpoint); err == nil {
				t.Errorf("%s is left", report.Endpoint)
			}
		})
	}
}

// The report says how a plugin ended by itself, though its connections end first.
func TestProcessEndsByItself(t *testing.T) {
	report, err := Run(t.Context(), Config{Command: command(t, "ends")})
	if err != nil {
		t.Fatal(err)
	}
	wantFailed(t, report, streamStays, "exit status 4")
}

// A plugin that ends again and again in the same way has one fault.
func TestEndsAgainAndAgain(t *testing.T) {
	t.Parallel()
	report, err := Run(t.Context(), Config{Command: command(t, "ends-at-all"), watch: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	wantFailed(t, report, "allocate-all", "the license is over")
	if r := find(report, "two-containers"); r.Happened != "the plugin ended again as in allocate-all" {
		t.Errorf("%s: %+v", report.Summary(), r)
	}
}

// A plugin that cannot be checked gives an error that says why.
func TestCannotBeChecked(t *testing.T) {
	served := scratch.Dir(t)
	b, err := newBench(Config{Dir: served, Patience: hangs})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.serve(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.stopServing)
	for name, tc := range map[string]struct {
		cfg  Config
		want string
	}{
		"nothing":      {Config{}, "give a command that starts the plugin, or the device"},
		"both":         {Config{Dir: "/tmp", Command: "true"}, "and not both"},
		"no command":   {Config{Command: "numalet-no-such-plugin"}, "not found"},
		"ends at once": {Config{Command: command(t, "exits")}, "no hardware here"},
		"no directory": {Config{Dir: filepath.Join(served, "x")}, "name the one that the plugin"},
		"served":       {Config{Dir: served}, "a device manager serves kubelet.sock in"},
	} {
		report, err := Run(t.Context(), tc.cfg)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
		if len(report.Results) > 0 {
			t.Errorf("%s: there are results: %+v", name, report.Results)
		}
	}
}

// A plugin that somebody else started is checked in its directory, and runs on afterwards.
func TestRunningPlugin(t *testing.T) {
	dir := scratch.Dir(t)
	p := NewProcess(command(t, "good"), &tail{})
	if err := p.Start(Dirs{Plugins: dir}); err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	report, err := Run(t.Context(), Config{Dir: dir, Resource: gpu})
	if err != nil {
		t.Fatal(err)
	}
	if names := namesOf(report, Failed); len(names) > 0 || report.Resource != gpu {
		t.Errorf("it fails %q", names)
	}
	for _, name := range []string{"stops", "socket-gone", "starts-after-kill"} {
		if r := find(report, name); r.Verdict != Skipped {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if end := p.Fate(); end != nil {
		t.Errorf("afterwards %s", end)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}
