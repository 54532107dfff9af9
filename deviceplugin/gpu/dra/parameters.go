package dra

import (
	"fmt"
	"slices"

	strictjson "sigs.k8s.io/json"
)

// parametersVersion is the version of NVIDIA's parameters.
const parametersVersion = "resource.nvidia.com/v1beta1"

// parameters are the opaque parameters of NVIDIA's driver that mean something here: a device that
// several containers share takes turns, with the driver's default time slice.
type parameters struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Sharing    *sharing `json:"sharing"`
}

type sharing struct {
	Strategy    string     `json:"strategy"`
	TimeSlicing *timeSlice `json:"timeSlicingConfig"`
}

type timeSlice struct {
	Interval *string `json:"interval"`
}

// checkParameters refuses opaque parameters for this driver that it cannot honour.
func checkParameters(raw []byte) error {
	var p parameters
	unknown, err := strictjson.UnmarshalStrict(raw, &p)
	switch {
	case err != nil:
		return err
	case p.APIVersion != parametersVersion ||
		!slices.Contains([]string{"GpuConfig", "MigDeviceConfig"}, p.Kind):
		return fmt.Errorf("%q of %q is not known: want GpuConfig or MigDeviceConfig of %s, or "+
			"leave the parameters out", p.Kind, p.APIVersion, parametersVersion)
	case p.Sharing != nil && p.Sharing.Strategy != "TimeSlicing":
		return fmt.Errorf("sharing.strategy %q is not supported: this driver has TimeSlicing only",
			p.Sharing.Strategy)
	case p.Sharing != nil && p.Sharing.TimeSlicing != nil &&
		p.Sharing.TimeSlicing.Interval != nil && *p.Sharing.TimeSlicing.Interval != "Default":
		return fmt.Errorf("sharing.timeSlicingConfig.interval %q is not supported: this driver "+
			"leaves the GPU's time slice as it is; write Default, or set it on the node with "+
			"nvidia-smi compute-policy", *p.Sharing.TimeSlicing.Interval)
	case len(unknown) > 0:
		return fmt.Errorf("%w: this driver does not know it", unknown[0])
	}
	return nil
}
