package shutdown

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// busConfig is of a bus on which everybody may do everything; %s is its socket.
const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>custom</type><listen>unix:path=%s</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*"/>
<allow send_type="signal"/><allow receive_sender="*"/></policy></busconfig>
`

// startLogind starts a bus, and systemd's logind with a /run and a configuration of its own.
const startLogind = `set -e
mount -t tmpfs run /run
mkdir -p /run/systemd
mount -t tmpfs etc /etc/systemd
mkdir /etc/systemd/logind.conf.d
mount --bind "$1/logind.conf.d" /etc/systemd/logind.conf.d
dbus-daemon --config-file="$1/bus.conf" --nofork --nopidfile &
until [ -e "$1/bus" ]; do sleep 0.05; done
exec /lib/systemd/systemd-logind
`

// systemd1 stands in for systemd beside a real logind: it starts nothing, and says that it did.
type systemd1 struct {
	conn   *dbus.Conn
	logind *os.Process
	units  chan string // that were to be started
	kills  atomic.Int32
}

const jobPath = dbus.ObjectPath("/org/freedesktop/systemd1/job/1")

// Subscribe, StartUnit and KillUnit are of systemd's API (org.freedesktop.systemd1(5)).
func (*systemd1) Subscribe() *dbus.Error { return nil }

func (s *systemd1) StartUnit(name, _ string) (dbus.ObjectPath, *dbus.Error) {
	s.units <- name
	return jobPath, nil
}

func (s *systemd1) StartUnitWithFlags(name, mode string, _ uint64) (dbus.ObjectPath, *dbus.Error) {
	return s.StartUnit(name, mode)
}

func (s *systemd1) KillUnit(_, _ string, signal int32) *dbus.Error {
	s.kills.Add(1)
	if err := s.logind.Signal(syscall.Signal(signal)); err != nil {
		return dbus.MakeFailedError(err)
	}
	return nil
}

// Get answers what logind asks of the units of a shutdown.
func (*systemd1) Get(_, _ string) (dbus.Variant, *dbus.Error) {
	return dbus.MakeVariant("loaded"), nil
}

// finish says that a unit was started, or was not.
func (s *systemd1) finish(unit, result string) error {
	return s.conn.Emit(systemd1Path, systemd+".JobRemoved", uint32(1), jobPath, unit, result)
}

const systemd = systemdName + ".Manager"

// real starts a real bus and logind, with systemd played by the test.
func realLogind(t *testing.T, dir string) *systemd1 {
	t.Helper()
	for _, program := range []string{"unshare", "dbus-daemon", "/lib/systemd/systemd-logind"} {
		if _, err := exec.LookPath(program); err != nil || os.Getuid() != 0 {
			t.Skipf("needs root, %s: %v", program, err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "logind.conf.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "bus")
	if err := os.WriteFile(filepath.Join(dir, "bus.conf"), fmt.Appendf(nil, busConfig, socket),
		0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+socket)
	cmd := exec.Command("unshare", "--mount", "sh", "-c", startLogind, "sh", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("logind and its bus said:\n%s", said.String())
		}
	})
	s := &systemd1{logind: cmd.Process, units: make(chan string, 10)}
	var err error
	for range 200 {
		if s.conn, err = dbus.ConnectSystemBus(); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.conn.Close() })
	for _, e := range []struct {
		at dbus.ObjectPath
		of string
	}{
		{systemd1Path, systemd},
		{systemd1Path + "/unit/poweroff_2etarget", bus + ".Properties"},
	} {
		if err := s.conn.Export(s, e.at, e.of); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.conn.RequestName(systemdName, dbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if _, err = (remote{s.conn}).delay(t.Context()); err == nil {
			return s
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal(err)
	return nil
}

// A real logind is told to wait longer, waits for the pods of a node that is turned off, and only
// then has systemd turn it off. If that fails, the node goes on.
func TestRealLogind(t *testing.T) {
	dir := t.TempDir()
	s := realLogind(t, dir)
	l := remote{s.conn}
	var locks int
	count := func() int {
		var all [][]any
		if err := l.call(t.Context(), l.logind(), manager+".ListInhibitors", nil, &all); err != nil {
			t.Fatal(err)
		}
		locks = 0
		for _, one := range all {
			if one[0] == "shutdown" && one[1] == "kubelet" && one[3] == "delay" {
				locks++
			}
		}
		return locks
	}
	n := startWith(t, Logind{DropIns: filepath.Join(dir, "logind.conf.d")}, two...)
	n.eventually("an inhibitor", func() bool { return count() == 1 })
	if delay, err := l.delay(t.Context()); delay != total(two) || err != nil || s.kills.Load() == 0 {
		t.Errorf("logind waits %v, told to read its configuration %d times (%v)", delay,
			s.kills.Load(), err)
	}
	n.cling()
	if err := l.call(t.Context(), l.logind(), manager+".PowerOff", []any{false}); err != nil {
		t.Fatal(err)
	}
	n.says1(began + "; pod0 within 20s")
	if len(s.units) > 0 || !n.announced.Now() {
		t.Errorf("the machine goes down before its pods have ended; announced %t", n.announced.Now())
	}
	n.gone()
	if unit := <-s.units; unit != "poweroff.target" || n.recorded().End.IsZero() {
		t.Errorf("%s is started; recorded is %+v", unit, n.recorded())
	}
	if err := s.finish("poweroff.target", "failed"); err != nil {
		t.Fatal(err)
	}
	n.says1(began + "; pod0 within 20s; " + cancelled)
	n.eventually("an inhibitor for the next time", func() bool { return count() == 1 })
	if n.announced.Now() {
		t.Error("the node takes no pods after the cancellation")
	}
}
