package mock

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/numalet/numalet/deviceplugin/gpu"
)

// divide replaces the GPU's MIG devices. One with the profile and place of an earlier one has the
// same UUID, as if the driver had not touched it.
func divide(r *Rig, i int, args []string) error {
	if !r.gpus[i].mig {
		return fmt.Errorf("GPU %d is not in MIG mode: mig %d on", i, i)
	}
	var wanted []Profile
	left := r.machine.Model.Slices
	for _, arg := range args {
		p, count, err := r.profile(arg)
		if err != nil {
			return err
		}
		if left -= p.Slices * count; left < 0 || count > p.Most {
			return fmt.Errorf("%s does not fit: the GPU has %d memory slices, and %s at most %d "+
				"times",
				strings.Join(args, " "), r.machine.Model.Slices, p.Name, p.Most)
		}
		wanted = append(wanted, slices.Repeat([]Profile{p}, count)...)
	}
	starts := places(wanted, 0)
	if starts == nil {
		return fmt.Errorf("%s does not fit: there are not so many places", strings.Join(args, " "))
	}
	var instances []gpu.Instance
	for n, p := range wanted {
		instances = append(instances, instance(i, n, p.Name, starts[n]))
	}
	r.gpus[i].instances = instances
	return nil
}

// profile reads "1g.10gb=7".
func (r *Rig) profile(arg string) (Profile, int, error) {
	name, number, _ := strings.Cut(arg, "=")
	at := slices.IndexFunc(r.machine.Model.Profiles,
		func(p Profile) bool { return p.Name == name })
	count, err := strconv.ParseUint(number, 10, 8)
	if at < 0 || err != nil {
		var names []string
		for _, p := range r.machine.Model.Profiles {
			names = append(names, p.Name)
		}
		return Profile{}, 0, fmt.Errorf("%q: want PROFILE=COUNT with a profile of %s", arg,
			strings.Join(names, ", "))
	}
	return r.machine.Model.Profiles[at], int(count), nil
}

func instance(at, number int, profile string, start int) gpu.Instance {
	minor := 3 + 135*at + 3*number // roughly as the driver numbers them
	return gpu.Instance{
		UUID:    migUUID(at, number, profile),
		Profile: profile, GPU: number + 1, Compute: 0, Start: start,
		Nodes: []string{
			fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", minor),
			fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", minor+1),
		},
	}
}

func migUUID(at, number int, profile string) string {
	return fmt.Sprintf("MIG-%08x-%04x-6d61-6c65-74%x", at, number,
		fmt.Appendf(nil, "%-5.5s", profile))
}
