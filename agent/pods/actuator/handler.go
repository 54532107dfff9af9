package actuator

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cri"
)

// handler returns the runtime handler of the pod's runtime class; "" is the default one. A
// standalone node has no runtime classes.
func (b build) handler(ctx context.Context) (string, error) {
	class := ptr.Deref(b.pod.Spec.RuntimeClassName, "")
	if class == "" || b.cfg.Objects == nil {
		return "", nil
	}
	handler, err := b.cfg.Objects.RuntimeHandler(ctx, class)
	if err != nil {
		return "", fmt.Errorf("spec.runtimeClassName: %w", err)
	}
	return handler, nil
}

// imageHandler returns the runtime handler that the pod's images are for; "": none in particular.
func (b build) imageHandler(ctx context.Context) (string, error) {
	if !b.node.ImageHandlers {
		return "", nil
	}
	return b.handler(ctx)
}

// withUsers assigns ids of the host to a pod that is to have a user namespace.
func (b build) withUsers() (build, error) {
	if b.node.Users == nil {
		return b, nil
	}
	var err error
	b.node.Security.IDs, err = b.node.Users.Of(b.pod)
	return b, err
}

// can reports whether the runtime has that handler with that ability.
func (n Node) can(handler string, what func(cri.RuntimeHandler) bool) bool {
	return slices.ContainsFunc(n.Handlers,
		func(h cri.RuntimeHandler) bool { return h.Name == handler && what(h) })
}

// recursiveReadOnly reports whether the container's mounts can be read-only with everything mounted
// below them. It is false if no mount asks for that.
func (s start) recursiveReadOnly(ctx context.Context) (bool, error) {
	if !slices.ContainsFunc(s.c.VolumeMounts,
		func(m v1.VolumeMount) bool { return m.RecursiveReadOnly != nil }) {
		return false, nil
	}
	handler, err := s.handler(ctx)
	return err == nil && s.node.can(handler,
		func(h cri.RuntimeHandler) bool { return h.RecursiveReadOnlyMounts }), err
}

// checkUsers refuses a user namespace that the handler cannot make.
func (b build) checkUsers(handler string) error {
	if !cri.OwnUsers(b.pod) || b.node.can(handler,
		func(h cri.RuntimeHandler) bool { return h.UserNamespaces }) {
		return nil
	}
	if handler == "" {
		return fmt.Errorf("spec.hostUsers: the container runtime does not support user " +
			"namespaces; remove the field or set it to true")
	}
	return fmt.Errorf("spec.hostUsers: runtime handler %q does not support user namespaces; "+
		"remove the field, set it to true, or choose another runtimeClassName", handler)
}
