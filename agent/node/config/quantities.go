package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/internal/quantity"
)

// ParseReserved parses kubeReserved or systemReserved: cpu, memory, ephemeral-storage, pid.
func ParseReserved(reserved map[string]string) (v1.ResourceList, error) {
	list := v1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(reserved)) {
		switch name {
		case "cpu", "memory", "ephemeral-storage", "pid":
		default:
			return nil, fmt.Errorf("%s: cannot be reserved; "+
				"want one of cpu, memory, ephemeral-storage, pid", name)
		}
		q, err := quantity.Parse(reserved[name])
		if err != nil || q.Sign() < 0 {
			return nil, fmt.Errorf("%s: want a quantity such as \"500m\" or \"2Gi\", found %q",
				name, reserved[name])
		}
		list[v1.ResourceName(name)] = q
	}
	return list, nil
}

// ParseQOSReserved parses qosReserved: the percentage of the requested memory that is kept from
// pods of lower QoS classes.
func ParseQOSReserved(reserved map[string]string) (percent int64, err error) {
	for _, name := range slices.Sorted(maps.Keys(reserved)) {
		if name != "memory" {
			return 0, fmt.Errorf("%s: cannot be reserved; want memory", name)
		}
		number, is := strings.CutSuffix(reserved[name], "%")
		percent, err = strconv.ParseInt(number, 10, 64)
		if !is || err != nil || percent < 0 || percent > 100 {
			return 0, fmt.Errorf("memory: want 0%% to 100%%, found %q", reserved[name])
		}
	}
	return percent, nil
}

// Threshold is the value of an eviction signal: a quantity, or a share of the capacity.
type Threshold struct {
	Quantity resource.Quantity
	// Part is used if Quantity is zero: 0.1 is a tenth of the capacity.
	Part float64
}

// ParseThreshold parses "100Mi" or "10%". ok is false for "0%" and "100%", which disable the
// signal.
func ParseThreshold(value string) (t Threshold, ok bool, err error) {
	if number, percent := strings.CutSuffix(value, "%"); percent {
		p, err := strconv.ParseFloat(number, 32)
		if err != nil || !(p >= 0 && p <= 100) {
			return Threshold{}, false, fmt.Errorf("want 0%% to 100%%, found %q", value)
		}
		part := float32(p) / 100 // as exact as the kubelet's, whose amounts statuses and messages show
		return Threshold{Part: float64(part)}, p > 0 && p < 100, nil
	}
	q, err := quantity.Parse(value)
	if err != nil || q.Sign() < 0 {
		return Threshold{}, false, fmt.Errorf(
			"want a quantity such as \"100Mi\" or a percentage such as \"10%%\", found %q", value)
	}
	return Threshold{Quantity: q}, true, nil
}

// Of returns the threshold in bytes (or inodes, or processes) for a capacity in the same unit.
func (t Threshold) Of(capacity int64) int64 {
	if t.Part > 0 {
		return int64(float64(capacity) * t.Part)
	}
	return t.Quantity.Value()
}
