package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	pluginsim "github.com/numalet/numalet/cmd/numalet-lab/sim"
)

// AssignableCPUs is the number of CPUs of the playground machine that pods may have: of its 64 CPUs
// the first is reserved.
const AssignableCPUs = 63

// AloneEnv names the environment variable in which a container says how many exclusive CPUs it
// wants.
const AloneEnv = "CHECK_CPUS"

// NameOf returns the name of a container for a test's messages.
func NameOf(c crisim.Container) string { return c.Subject.Pod + "/" + c.Subject.Container }

// Alone returns how many exclusive CPUs a container wants.
func Alone(c crisim.Container) int {
	n, _ := strconv.Atoi(c.Env()[AloneEnv])
	return n
}

// CPUsOf returns the CPUs on which a container may run: all if its cpuset is empty.
func CPUsOf(c crisim.Container) cpuset.CPUSet {
	if c.CPUs == "" {
		var all []int
		for i := range AssignableCPUs + 1 {
			all = append(all, i)
		}
		return cpuset.New(all...)
	}
	set, err := cpuset.Parse(c.CPUs)
	if err != nil {
		panic(err) // the runtime has checked it
	}
	return set
}

// DevicesOf returns the devices of a resource that the simulated plugin named to a container.
func DevicesOf(c crisim.Container, resource string) []string {
	ids := c.Env()[pluginsim.EnvName(resource)]
	if ids == "" {
		return nil
	}
	return strings.Split(ids, ",")
}

// Clashes describes what two running containers may not both have: the same name, CPUs that are
// exclusive to one of them, a device of these resources.
func Clashes(a, b crisim.Container, resources ...string) (found []string) {
	if a.Subject.UID == b.Subject.UID && a.Subject.Container == b.Subject.Container {
		found = append(found, fmt.Sprintf("%s runs twice, attempts %d and %d", NameOf(a),
			a.Subject.Attempt, b.Subject.Attempt))
	}
	shared := CPUsOf(a).Intersection(CPUsOf(b))
	if Alone(a)+Alone(b) > 0 && !shared.IsEmpty() {
		found = append(found, fmt.Sprintf("%s (%d of its own) and %s (%d) both run on CPUs %s",
			NameOf(a), Alone(a), NameOf(b), Alone(b), shared))
	}
	for _, name := range resources {
		for _, id := range DevicesOf(a, name) {
			if slices.Contains(DevicesOf(b, name), id) {
				found = append(found, fmt.Sprintf("%s and %s both have %s %s", NameOf(a), NameOf(b),
					name, id))
			}
		}
	}
	return found
}

// Assigned returns what pods hold. It reads a copy of the state file, as the agent would.
func (n *Node) Assigned() (allocation.State, error) {
	raw, err := os.ReadFile(filepath.Join(n.Root, store.FileName))
	if os.IsNotExist(err) {
		return allocation.State{}, nil
	}
	dir := filepath.Join(n.Dir, "state-copy")
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, store.FileName), raw, 0o600)
	}
	if err != nil {
		return allocation.State{}, err
	}
	store, err := store.Open(dir)
	if err != nil {
		return allocation.State{}, fmt.Errorf("the state file is not sound: %w", err)
	}
	return store.State(), nil
}

// Number returns the number in an environment variable, or otherwise if the variable is not set.
func Number(t testing.TB, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return number
}
