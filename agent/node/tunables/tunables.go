// Package tunables has the kernel as pods are used to find it on a node: memory can be
// overcommitted, the OOM killer ends a process and not the machine, a kernel that is broken restarts,
// and root has keys for all containers.
package tunables

import (
	"errors"
	"fmt"

	"k8s.io/component-helpers/node/util/sysctl"
)

// wanted are the settings with their values, in the order in which they are told of.
var wanted = []struct {
	name  string
	value int
}{
	{sysctl.VMOvercommitMemory, sysctl.VMOvercommitMemoryAlways},
	{sysctl.VMPanicOnOOM, sysctl.VMPanicOnOOMInvokeOOMKiller},
	{sysctl.KernelPanic, sysctl.KernelPanicRebootTimeout},
	{sysctl.KernelPanicOnOops, sysctl.KernelPanicOnOopsAlways},
	{sysctl.RootMaxKeys, sysctl.RootMaxKeysSetting},
	{sysctl.RootMaxBytes, sysctl.RootMaxBytesSetting},
}

// Check names each setting that is not as it should be: protectKernelDefaults.
func Check(kernel sysctl.Interface) error {
	return each(kernel, func(name string, is, value int) error {
		return fmt.Errorf("the kernel's %s is %d and has to be %d: set it in /etc/sysctl.d, or have "+
			"the agent do so with protectKernelDefaults: false",
			sysctl.NormalizeName(name), is, value)
	})
}

// Set corrects the values that are wrong. If one cannot be changed, the others still are.
func Set(kernel sysctl.Interface) error {
	return each(kernel, func(name string, is, value int) error {
		if err := kernel.SetSysctl(name, value); err != nil {
			return fmt.Errorf("the kernel's %s is %d, should be %d and cannot be set: %w",
				sysctl.NormalizeName(name), is, value, err)
		}
		return nil
	})
}

// each calls differs for each setting whose value is wrong.
func each(kernel sysctl.Interface, differs func(name string, is, value int) error) error {
	var errs []error
	for _, w := range wanted {
		is, err := kernel.GetSysctl(w.name)
		if err == nil && is != w.value {
			err = differs(w.name, is, w.value)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
