package dra

import (
	"fmt"
	"strconv"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Options say what is offered.
type Options struct {
	// Dynamic: claims divide GPUs that are in MIG mode.
	Dynamic bool
	Shares  Shares
	driver  string // its name
}

// Shares say how several claims can have one device at the same time. The zero value: they cannot.
type Shares struct {
	// Memory: a claim gets a device whole unless it asks for a capacity of memory.
	Memory bool
	// Unlimited: any number of claims share a device; a capacity of memory is optional.
	Unlimited bool
	// Most is the number of claims that share a device; 0: no such limit.
	Most int
}

// maxShares bounds the shares of one device.
const maxShares = 1000

// ParseShares reads none, memory, unlimited, or a number.
func ParseShares(text string) (Shares, error) {
	switch text {
	case "", "none":
		return Shares{}, nil
	case "memory":
		return Shares{Memory: true}, nil
	case "unlimited":
		return Shares{Unlimited: true}, nil
	}
	most, err := strconv.Atoi(text)
	if err != nil || most < 1 || most > maxShares {
		return Shares{}, fmt.Errorf("want none, memory, unlimited, or a number from 1 to %d",
			maxShares)
	}
	return Shares{Most: most}, nil
}

// addTo makes a device consumable by several claims.
func (s Shares) addTo(d *resourcev1.Device) {
	if s == (Shares{}) {
		return
	}
	d.AllowMultipleAllocations = new(true)
	if memory, has := d.Capacity[memoryCapacity]; has {
		const step = 1 << 20
		most := memory.Value.Value() / step * step
		least, usual := int64(0), int64(0)
		if s.Memory {
			least, usual = step, most
		}
		memory.Value = *bytes(most)
		memory.RequestPolicy = policy(bytes(usual), bytes(least), bytes(most), bytes(step))
		d.Capacity[memoryCapacity] = memory
	}
	if s.Most > 0 {
		if d.Capacity == nil {
			d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{}
		}
		most := int64(s.Most)
		d.Capacity["shares"] = resourcev1.DeviceCapacity{Value: *number(most),
			RequestPolicy: policy(number(1), number(1), number(most), number(1))}
	}
}

func policy(usual, least, most, step *resource.Quantity) *resourcev1.CapacityRequestPolicy {
	return &resourcev1.CapacityRequestPolicy{Default: usual,
		ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: least, Max: most, Step: step}}
}

func bytes(n int64) *resource.Quantity  { return resource.NewQuantity(n, resource.BinarySI) }
func number(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.DecimalSI) }
