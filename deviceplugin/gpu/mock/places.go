package mock

import (
	"fmt"
	"slices"
	"strings"

	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/quantity"
)

// profileIDs are the driver's numbers of the profiles, by compute and memory slices.
var profileIDs = map[[2]int]int{
	{1, 1}: 19, {1, 2}: 15, {2, 2}: 14, {3, 4}: 9, {4, 4}: 5, {7, 8}: 0,
}

// traits returns what does not change about the machine's GPUs. validate has checked the memory.
func (m *Machine) traits() gpu.Traits {
	out := gpu.Traits{Brand: m.Model.Brand, Architecture: m.Model.Architecture,
		Compute: m.Model.Compute}
	if memory, err := quantity.Parse(m.Model.Memory); err == nil {
		out.Memory = uint64(memory.Value())
	}
	return out
}

// partitions returns the places for MIG devices on each of the machine's GPUs.
func (m *Machine) partitions() (out []gpu.Partition) {
	memory := m.traits().Memory
	for _, p := range m.Model.Profiles {
		for _, start := range p.starts() {
			out = append(out, gpu.Partition{Profile: p.Name, Compute: p.compute(),
				ID: profileIDs[[2]int{p.compute(), p.Slices}], Start: start, Size: p.Slices,
				Memory: memory / uint64(m.Model.Slices) * uint64(p.Slices)})
		}
	}
	return out
}

// starts returns the memory slices at which a MIG device of the profile can begin.
func (p Profile) starts() (out []int) {
	for n := range p.Most {
		out = append(out, n*p.Slices)
	}
	return out
}

// compute returns the compute slices of the profile: the number that its name begins with.
func (p Profile) compute() (slices int) {
	_, _ = fmt.Sscanf(p.Name, "%dg", &slices) // 0 if the name is no NVIDIA profile's
	return slices
}

// root returns the PCIe root complex of a GPU: the GPUs of one host bridge share it. Its bus is the
// one before that of the bridge's first GPU.
func (m *Machine) root(i int) string {
	way, _ := m.GPUs[i].place() // validate has checked it
	for _, g := range m.GPUs {
		if other, _ := g.place(); slices.Equal(other[:2], way[:2]) {
			var domain, bus int
			if _, err := fmt.Sscanf(g.Bus, "%x:%x:", &domain, &bus); err != nil {
				return ""
			}
			return fmt.Sprintf("pci%04x:%02x", domain, max(0, bus-1))
		}
	}
	return ""
}

// places finds a start for each profile so that none overlaps; nil: there is none.
func places(wanted []Profile, taken uint64) []int {
	if len(wanted) == 0 {
		return []int{}
	}
	for _, start := range wanted[0].starts() {
		mask := maskOf(start, wanted[0].Slices)
		if taken&mask != 0 {
			continue
		}
		if rest := places(wanted[1:], taken|mask); rest != nil {
			return append([]int{start}, rest...)
		}
	}
	return nil
}

func maskOf(start, size int) uint64 { return (1<<size - 1) << start }

// firstMade is greater than the numbers of the MIG devices that an order makes.
const firstMade = 0x100

// Divide implements gpu.Divider.
func (r *Rig) Divide(uuid string, place gpu.Partition) (gpu.Instance, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, err := r.dividedLocked(uuid)
	if err != nil {
		return gpu.Instance{}, err
	}
	if !slices.Contains(r.machine.partitions(), place) {
		return gpu.Instance{}, fmt.Errorf("GPU %s has no place %d for %s", uuid, place.Start,
			place.Profile)
	}
	ids := map[int]bool{}
	for _, other := range r.gpus[i].instances {
		ids[other.GPU] = true
		if maskOf(other.Start, r.slicesOf(other.Profile))&maskOf(place.Start, place.Size) != 0 {
			return gpu.Instance{}, fmt.Errorf("GPU %s: %s at %d is in the way of %s at %d", uuid,
				other.Profile, other.Start, place.Profile, place.Start)
		}
	}
	id := 1
	for ids[id] {
		id++
	}
	r.made++
	made := instance(i, id-1, place.Profile, place.Start)
	made.UUID = migUUID(i, firstMade+r.made, place.Profile) // no UUID is used again
	r.gpus[i].instances = append(slices.Clone(r.gpus[i].instances), made)
	await.Wake(r.wake)
	return made, nil
}

// Remove implements gpu.Divider.
func (r *Rig) Remove(uuid, instance string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, err := r.dividedLocked(uuid)
	if err != nil {
		return err
	}
	r.gpus[i].instances = slices.DeleteFunc(slices.Clone(r.gpus[i].instances),
		func(o gpu.Instance) bool { return o.UUID == instance })
	await.Wake(r.wake)
	return nil
}

// dividedLocked returns the position of a GPU in MIG mode.
func (r *Rig) dividedLocked(uuid string) (int, error) {
	if !r.loaded {
		return 0, gpu.ErrNoDriver
	}
	for i, s := range r.gpus {
		switch {
		case UUID(i) != uuid || s.gone:
		case !s.mig:
			return 0, fmt.Errorf("GPU %s is not in MIG mode", uuid)
		default:
			return i, nil
		}
	}
	return 0, fmt.Errorf("there is no GPU %s", uuid)
}

func (r *Rig) slicesOf(profile string) int {
	at := slices.IndexFunc(r.machine.Model.Profiles,
		func(p Profile) bool { return strings.EqualFold(p.Name, profile) })
	return r.machine.Model.Profiles[at].Slices
}
