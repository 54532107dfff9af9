package dra

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/numalet/numalet/deviceplugin/dradriver"
	"github.com/numalet/numalet/deviceplugin/gpu"
)

// Flags is the part of the command line that is for drivers of claims.
type Flags struct {
	*dradriver.Flags
	mig, shares string
}

// AddFlags adds the flags of a driver of claims.
func AddFlags(set *pflag.FlagSet) *Flags {
	f := &Flags{Flags: dradriver.AddFlags(set, "GPUs", gpu.DriverName, "")}
	set.StringVar(&f.mig, "dra-mig", "static",
		"with --dra: static offers the MIG devices that there are; dynamic has claims divide the "+
			"GPUs that are in MIG mode")
	set.StringVar(&f.shares, "dra-shares", "none",
		"with --dra: how many claims can have a device at the same time: none but one, memory "+
			"(by their capacity of memory), unlimited, or a number")
	return f
}

// Check refuses flags of a driver of claims without --dra, and has the plugin use CDI with it.
func (f *Flags) Check(set *pflag.FlagSet) error {
	if f.On {
		return set.Set("device-list-strategy", string(gpu.CDICRI))
	}
	return f.Flags.Check(set, "dra-mig", "dra-shares")
}

// Config returns the driver's configuration, without that of the plugin.
func (f *Flags) Config(env func(string) string) (out Config, err error) {
	switch f.mig {
	case "static":
	case "dynamic":
		out.Options.Dynamic = true
	default:
		return out, fmt.Errorf("--dra-mig %q: want static or dynamic", f.mig)
	}
	if out.Options.Shares, err = ParseShares(f.shares); err != nil {
		return out, fmt.Errorf("--dra-shares %q: %w", f.shares, err)
	}
	out.Claims, err = f.Flags.Config("numalet-gpu", env)
	return out, err
}
