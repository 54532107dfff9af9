package kernel

import (
	"slices"
	"testing"
	"time"
)

func proc(t *testing.T) Proc {
	t.Helper()
	p, err := NewProc(tree(t, map[string]string{
		"stat":    "cpu  1 0 1 1 0 0 0 0 0 0\nbtime 1700000000\n",
		"meminfo": "MemTotal: 1000 kB\nMemFree: 400 kB\nSwapTotal: 100 kB\nSwapFree: 60 kB\nHugetlb: 64 kB\n",
		"net/dev": "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame " +
			"compressed multicast|bytes packets errs drop fifo colls carrier compressed\n" +
			"    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n" +
			"  eth1: 7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n" +
			"  eth0: 10 1 2 0 0 0 0 0 30 1 4 0 0 0 0 0\n" +
			"veth12: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n",
		"7/net/dev": "a\nb\n lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n" +
			" veth1: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n" +
			" eth0: 5 6 7 8 0 0 0 0 9 10 11 12 0 0 0 0\n",
		"loadavg":                "0.20 0.18 0.12 1/80 11206\n",
		"sys/kernel/pid_max":     "32768\n",
		"sys/kernel/threads-max": "4000\n",
		"pressure/memory":        "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestMachine(t *testing.T) {
	t.Parallel()
	p := proc(t)
	if at, err := p.BootTime(); err != nil || !at.Equal(time.Unix(1700000000, 0)) {
		t.Errorf("boot time is %s, %v", at, err)
	}
	want := MachineMemory{1000 << 10, 400 << 10, 64 << 10, 100 << 10, 60 << 10}
	if m, err := p.Memory(); err != nil || m != want {
		t.Errorf("memory is %+v, %v, want %+v", m, err, want)
	}
	all, err := p.Interfaces()
	if err != nil || len(all) != 2 || all[0].Name != "eth0" || all[1].Name != "eth1" {
		t.Fatalf("interfaces are %+v, %v, want eth0 and eth1", all, err)
	}
	if want := (Interface{"eth0", Traffic{10, 1, 2, 0}, Traffic{30, 1, 4, 0}}); all[0] != want {
		t.Errorf("got %+v, want %+v", all[0], want)
	}
	want7 := []Interface{{"eth0", Traffic{5, 6, 7, 8}, Traffic{9, 10, 11, 12}},
		{Name: "veth1"}}
	if all, err := p.InterfacesOf(7); err != nil || !slices.Equal(all, want7) {
		t.Errorf("a process sees %+v, %v, want %+v", all, err, want7)
	}
	if all, err := p.InterfacesOf(8); err == nil {
		t.Errorf("a process that is not there sees %+v", all)
	}
	current, limit, err := p.Threads()
	if err != nil || current != 80 || limit != 4000 {
		t.Errorf("threads are %d of %d, %v, want 80 of 4000", current, limit, err)
	}
	if psi := p.Pressure(); psi.CPU != nil || psi.Memory.Some.Total != 12000 {
		t.Errorf("pressure is %+v, want that of memory alone", psi)
	}
}
