package actuator

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cri"
)

// handler is the runtime handler of the pod's runtime class; "" is the default one. On a standalone
// node there are no runtime classes.
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

// withUsers gives the pod, if it is to have a user namespace, ids of the host.
func (b build) withUsers() (build, error) {
	if b.node.Users == nil {
		return b, nil
	}
	var err error
	b.node.Security.IDs, err = b.node.Users.Of(b.pod)
	return b, err
}

// checkUsers refuses a user namespace that the handler cannot make.
func (b build) checkUsers(handler string) error {
	if !cri.OwnUsers(b.pod) || slices.ContainsFunc(b.node.Handlers,
		func(h cri.RuntimeHandler) bool { return h.Name == handler && h.UserNamespaces }) {
		return nil
	}
	if handler == "" {
		return fmt.Errorf("spec.hostUsers: the container runtime does not support user " +
			"namespaces; remove the field or set it to true")
	}
	return fmt.Errorf("spec.hostUsers: runtime handler %q does not support user namespaces; "+
		"remove the field, set it to true, or choose another runtimeClassName", handler)
}
