package guest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// swapSpace is how many MiB of its disk the machine gets to swap to.
const swapSpace = 64

// addSwap gives the machine its swap space.
func addSwap(t *testing.T) {
	t.Helper()
	file := filepath.Join(home, "swap")
	if err := os.WriteFile(file, make([]byte, swapSpace<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"mkswap", "swapon"} {
		if out, err := exec.Command(program, file).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", program, err, out)
		}
	}
}

// protect starts the agent anew with all that cgroup v2 can do for memory, for pods and for the
// system's daemons, and returns the cgroup of these. The machine has swap space from then on.
func protect(t *testing.T, g guest) (daemons string) {
	t.Helper()
	const name = "daemons"
	daemons = filepath.Join(cgroupDir, name)
	if err := os.Mkdir(daemons, 0o755); err != nil {
		t.Fatal(err)
	}
	addSwap(t)
	for setting, value := range map[string]any{
		"failSwapOn":              false,
		"memorySwap":              map[string]string{"swapBehavior": "LimitedSwap"},
		"featureGates":            map[string]bool{"MemoryQoS": true},
		"memoryReservationPolicy": "TieredReservation",
		"memoryThrottlingFactor":  0.5,
		"enforceNodeAllocatable":  []string{"pods", "system-reserved"},
		"systemReservedCgroup":    "/" + name,
		// The CPUs that cannot be named beside a cgroup; the first core is theirs as before.
		"systemReserved": map[string]string{"cpu": "2", "memory": "100Mi"},
	} {
		g.Settings[setting] = value
	}
	delete(g.Settings, "reservedSystemCPUs")
	g.Kill()
	g.Start()
	return daemons
}

// testUsers: root in a pod with a user namespace is nobody outside.
func testUsers(g guest) {
	g.run(map[string]ask{"users": {users: true}})
	l := g.look("users")
	var inside, first, size int
	text := said(g.t, "/proc", strconv.Itoa(l.pid), "uid_map")
	if _, err := fmt.Sscan(text, &inside, &first, &size); err != nil {
		g.t.Fatalf("uid_map %q: %v", text, err)
	}
	row(g.t, "users: uid 0 is %d outside, %d ids", first, size)
	if inside != 0 || first < 1<<16 || size != 1<<16 {
		g.t.Errorf("uid_map is %q, want 65536 ids from 0, beyond the host's", text)
	}
	if l.report.User.UID != 0 {
		g.t.Errorf("it is user %d inside", l.report.User.UID)
	}
	g.remove("users")
}

// testMemoryQoS: what was requested is kept, at every level, and a container that comes near its
// limit is slowed down by the kernel (KEP-2570). The pods of the boot before are guaranteed ones.
func testMemoryQoS(g guest, daemons string) {
	const mib = 1 << 20
	g.run(map[string]ask{
		"kept":      {cpu: "2", memory: "64Mi"},
		"throttled": {cpu: "2", memory: "96Mi", request: "32Mi", uses: 72},
	})
	kept, throttled := g.look("kept"), g.look("throttled")
	pods := filepath.Join(cgroupDir, "kubepods")
	for _, want := range []struct {
		dir, file string
		value     int
	}{
		{kept.cgroup, "memory.min", 64 * mib},
		{kept.cgroup, "memory.low", 0},
		{filepath.Dir(kept.cgroup), "memory.min", 64 * mib},
		{throttled.cgroup, "memory.min", 0},
		{throttled.cgroup, "memory.low", 32 * mib},
		{throttled.cgroup, "memory.high", 64 * mib},
		{throttled.cgroup, "memory.max", 96 * mib},
		{throttled.cgroup, "memory.swap.max", 0}, // static pods are critical ones, which do not swap
		{filepath.Dir(throttled.cgroup), "memory.low", 32 * mib},
		{filepath.Join(pods, "burstable"), "memory.low", 32 * mib},
		{pods, "memory.min", (3*64 + 32) * mib}, // kept, near, pair and throttled
		{pods, "memory.low", 32 * mib},
		{daemons, "memory.min", 100 * mib},
		{daemons, "memory.max", 100 * mib},
		// The agent has the whole machine, and has set what pods expect of its kernel.
		{"/proc/sys/vm", "overcommit_memory", 1},
		{"/proc/sys/kernel", "panic", 10},
	} {
		g.Eventually(fmt.Sprintf("%s of %s is %d", want.file, want.dir, want.value), func() error {
			if got := saidNumber(g.t, want.dir, want.file); got != want.value {
				return fmt.Errorf("it is %d", got)
			}
			return nil
		})
	}
	g.Eventually("throttled was slowed down", func() error {
		events := said(g.t, throttled.cgroup, "memory.events")
		if !strings.Contains(events, "\nhigh ") || strings.Contains(events, "\nhigh 0") {
			return fmt.Errorf("memory.events:\n%s", events)
		}
		return nil
	})
	row(g.t, "throttled uses %d MiB of 96, memory.high is at 64",
		saidNumber(g.t, throttled.cgroup, "memory.current")/mib)
	g.remove("kept", "throttled")
}
