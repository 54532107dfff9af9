package places

import (
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology"
)

// amounts adds which CPUs, or how much memory, the device is.
func (f *finder) amounts(at *claim.Place) {
	at.Has = claim.AmountOf(f.device.Driver, f.device.Capacity,
		func(c resourcev1.DeviceCapacity) resource.Quantity { return c.Value })
	at.PageBytes = f.pageBytes()
	cpus := f.cpus()
	if cpus.IsEmpty() {
		return
	}
	at.CPUs = cpus.String()
	if at.Has.CPUs == 0 {
		at.Has.CPUs = int64(cpus.Size())
	}
	if at.Nodes.IsEmpty() {
		at.Nodes = f.machine.NodesOf(cpus)
	}
}

// cpus returns the machine's CPUs of the first attribute that names only such.
func (f *finder) cpus() cpuset.CPUSet {
	known := f.machine.Online().Union(f.machine.Offline())
	why := "the machine has the CPUs " + known.String()
	for _, a := range f.said[CPU] {
		for _, id := range a.ints() {
			if id >= 0 && id <= topology.MaxID && known.Contains(int(id)) {
				return cpuset.New(int(id))
			}
			f.complain(a, id, why)
		}
	}
	for _, a := range f.said[CPUs] {
		for _, text := range a.texts() {
			cpus, err := topology.ParseCPUs(text)
			if err == nil && !cpus.IsEmpty() && cpus.IsSubsetOf(known) {
				return cpus
			}
			f.complain(a, strconv.Quote(text), why)
		}
	}
	return cpuset.New()
}

// pageBytes reads sizes such as 4k, 2m and 1g.
func (f *finder) pageBytes() int64 {
	for _, a := range f.said[PageSize] {
		for _, text := range a.texts() {
			if len(text) < 2 {
				continue
			}
			number, unit := text[:len(text)-1], strings.IndexByte("kmg", text[len(text)-1]|0x20)
			if n, err := strconv.ParseInt(number, 10, 32); err == nil && n > 0 && unit >= 0 {
				return n << (10 * (unit + 1))
			}
			f.complain(a, text, "that is no size of pages such as 2m")
		}
	}
	return 0
}
