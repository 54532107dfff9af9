//go:build cgo

package nvml

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	nvmlmock "github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/numalet/numalet/deviceplugin/gpu"
)

// oddCodes returns errors of NVML, and one that no version has.
func oddCodes() (codes []nvml.Return) {
	for code := nvml.ERROR_UNINITIALIZED; code <= nvml.ERROR_INVALID_STATE; code++ {
		codes = append(codes, code)
	}
	return append(codes, nvml.ERROR_UNKNOWN, 12345)
}

// failing makes a method of a mock fail with zero values and the code.
func failing(mock any, method string, ret nvml.Return) {
	field := reflect.ValueOf(mock).Elem().FieldByName(method)
	field.Set(reflect.MakeFunc(field.Type(), func([]reflect.Value) (out []reflect.Value) {
		for i := range field.Type().NumOut() {
			out = append(out, reflect.Zero(field.Type().Out(i)))
		}
		out[len(out)-1] = reflect.ValueOf(ret)
		return out
	}))
}

// methods lists the methods that a mock has.
func methods(mock any) (names []string) {
	v := reflect.ValueOf(mock).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Func && !f.IsNil() {
			names = append(names, v.Type().Field(i).Name)
		}
	}
	return names
}

// oddMachine is a DGX H100 whose second GPU is divided.
func oddMachine(t *testing.T) *library {
	t.Helper()
	l := newLibrary(t, "dgxh100")
	for _, order := range []string{"mig 1 on", "divide 1 1g.10gb=3"} {
		if err := l.rig.Do(order); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func (l *library) snapshot(t *testing.T) (gpu.Snapshot, error) {
	t.Helper()
	session, err := Driver{Library: l, Root: l.root}.Open()
	if err != nil {
		return gpu.Snapshot{}, err
	}
	defer session.Close()
	return session.Read()
}

// If any call about one GPU fails, in any way, the other GPUs are unaffected. That GPU is offered
// with what could be read, or counts as silent; it is never offered as a whole if it may be in MIG
// mode.
func TestEveryCallOfOneGPUFails(t *testing.T) {
	l := oddMachine(t)
	good, err := l.snapshot(t)
	if err != nil || len(good.GPUs) != 8 {
		t.Fatalf("%d GPUs: %v", len(good.GPUs), err)
	}
	open := l.DeviceGetHandleByIndexFunc
	for _, method := range methods(l.device(t, 1)) {
		for _, ret := range oddCodes() {
			l.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
				d, opened := open(i)
				if device, ok := d.(*nvmlmock.Device); ok && i == 1 {
					failing(device, method, ret)
				}
				return d, opened
			}
			got, err := l.snapshot(t)
			if errors.Is(failed("", ret), gpu.ErrNoDriver) {
				continue // this error does not concern one GPU
			}
			if err != nil {
				t.Errorf("%s, %v: %v", method, ret, err)
				continue
			}
			others := slices.DeleteFunc(slices.Clone(got.GPUs), func(g gpu.GPU) bool { return g.Index == 1 })
			want := slices.Concat(good.GPUs[:1], good.GPUs[2:])
			if !reflect.DeepEqual(names(others), names(want)) {
				t.Errorf("%s, %v: the others are %v", method, ret, names(others))
			}
			at := slices.IndexFunc(got.GPUs, func(g gpu.GPU) bool { return g.Index == 1 })
			switch {
			case at < 0 && got.Silent[1].Said == "":
				t.Errorf("%s, %v: GPU 1 is gone, and nothing says so", method, ret)
			case at >= 0 && (!got.GPUs[at].MIG && !unknown(ret) || got.GPUs[at].UUID != good.GPUs[1].UUID):
				t.Errorf("%s, %v: GPU 1 is %+v", method, ret, got.GPUs[at])
			}
			if at >= 0 && len(got.Links) != 8 {
				t.Errorf("%s, %v: links of %d", method, ret, len(got.Links))
			}
		}
	}
}

// names returns the GPUs without what depends on their links.
func names(gpus []gpu.GPU) (out []gpu.GPU) {
	for _, g := range gpus {
		g.Reading.LinksUp, g.Reading.LinksDown = 0, 0
		out = append(out, g)
	}
	return out
}

// If any call about the driver fails, Read or Open fails: it never returns an empty machine.
func TestEveryCallOfTheDriverFails(t *testing.T) {
	for _, method := range []string{"InitFunc", "SystemGetDriverVersionFunc", "DeviceGetCountFunc"} {
		for _, ret := range oddCodes() {
			l := oddMachine(t)
			failing(&l.Interface, method, ret)
			if got, err := l.snapshot(t); err == nil {
				t.Errorf("%s, %v: %d GPUs", method, ret, len(got.GPUs))
			}
		}
	}
}

// The profiles of a divided GPU cannot be named if its memory size is zero.
func TestNoMemory(t *testing.T) {
	l := oddMachine(t)
	open := l.DeviceGetHandleByIndexFunc
	l.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		d, opened := open(i)
		if device, ok := d.(*nvmlmock.Device); ok {
			device.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
				return nvml.Memory{}, nvml.SUCCESS
			}
		}
		return d, opened
	}
	got, err := l.snapshot(t)
	if err != nil || len(got.GPUs) != 7 || !strings.Contains(got.Silent[1].Said, "memory") {
		t.Errorf("%d GPUs, %v: %v", len(got.GPUs), got.Silent, err)
	}
}

// Valid machines: one without GPUs, one with sixteen GPUs of which every second does not answer,
// one with two GPUs at the same bus address.
func TestOddMachines(t *testing.T) {
	l := newLibrary(t, "dgx2")
	count, open := l.DeviceGetCountFunc, l.DeviceGetHandleByIndexFunc
	l.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.SUCCESS }
	if got, err := l.snapshot(t); err != nil || len(got.GPUs)+len(got.Silent)+len(got.Links) != 0 {
		t.Errorf("without GPUs: %+v, %v", got, err)
	}
	l.DeviceGetCountFunc = count
	l.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i%2 == 1 {
			return nil, nvml.ERROR_UNKNOWN
		}
		return open(i)
	}
	got, err := l.snapshot(t)
	if err != nil || len(got.GPUs) != 8 || len(got.Silent) != 8 || len(got.Links) != 8 {
		t.Errorf("with holes: %d GPUs, %d silent, links of %d, %v", len(got.GPUs), len(got.Silent),
			len(got.Links), err)
	}
	for at, g := range got.GPUs {
		if g.Index != 2*at {
			t.Errorf("GPU %d is at %d", g.Index, at)
		}
	}
	if best := got.Links.Choose([]int{0, 1, 2, 3, 4, 5, 6, 7}, nil, 4); len(best) != 4 {
		t.Errorf("of those with holes it chooses %v", best)
	}
	l.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		d, opened := open(i)
		if device, ok := d.(*nvmlmock.Device); ok && i == 3 {
			other, _ := open(2)
			device.GetPciInfoFunc = other.GetPciInfo
		}
		return d, opened
	}
	got, err = l.snapshot(t)
	if err != nil || len(got.GPUs) != 16 || got.GPUs[2].Bus != got.GPUs[3].Bus {
		t.Fatalf("on one place: %d GPUs, %v", len(got.GPUs), err)
	}
	if best := got.Links.Choose([]int{2, 3, 4}, nil, 2); len(best) != 2 {
		t.Errorf("of those on one place it chooses %v", best)
	}
}
