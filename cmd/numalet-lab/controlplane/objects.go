package controlplane

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// kubeletClient is the user of the API server at nodes.
	kubeletClient = "kube-apiserver-kubelet-client"
	// frontClient is the user of the API server at aggregated API servers, which accept the users that
	// it names.
	frontClient = "front-proxy-client"
	// bootstrappers is the group of clients with the bootstrap token.
	bootstrappers = "system:bootstrappers:numalet"
)

// bootstrapToken authenticates a node that requests its certificate.
type bootstrapToken struct{ id, secret string }

func newBootstrapToken() bootstrapToken {
	text := strings.ToLower(rand.Text()) // 26 letters and digits
	return bootstrapToken{text[:6], text[6:22]}
}

func (t bootstrapToken) String() string { return t.id + "." + t.secret }

func (t bootstrapToken) object() *v1.Secret {
	return &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + t.id},
		Type:       "bootstrap.kubernetes.io/token",
		StringData: map[string]string{
			"token-id": t.id, "token-secret": t.secret,
			"usage-bootstrap-authentication": "true", "auth-extra-groups": bootstrappers,
		},
	}
}

// bindings grant the rights that kubeadm grants: the API server may use nodes, and nodes may get
// and renew their certificates.
var bindings = []struct{ name, role, kind, to string }{
	{"numalet:kubelet-api", "system:kubelet-api-admin", rbac.UserKind, kubeletClient},
	{"numalet:bootstrap", "system:node-bootstrapper", rbac.GroupKind, bootstrappers},
	{"numalet:approve-bootstrap", "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
		rbac.GroupKind, bootstrappers},
	{"numalet:approve-renewal", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
		rbac.GroupKind, "system:nodes"},
}

// furnish creates the objects that a cluster needs, and waits for those that controllers create.
func (c *Cluster) furnish(ctx context.Context) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	for _, b := range bindings {
		binding := &rbac.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: b.name},
			RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: b.role},
			Subjects:   []rbac.Subject{{APIGroup: rbac.GroupName, Kind: b.kind, Name: b.to}},
		}
		_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create ClusterRoleBinding %s: %w", b.name, err)
		}
	}
	_, err = client.CoreV1().Secrets(metav1.NamespaceSystem).Create(
		ctx, c.token.object(), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the bootstrap token: %w", err)
	}
	return c.poll(ctx, "pods can be made", func() error {
		return Usable(ctx, client, metav1.NamespaceDefault)
	})
}

// Usable returns an error until the controllers have created what pods in a namespace need.
func Usable(ctx context.Context, client kubernetes.Interface, namespace string) error {
	core := client.CoreV1()
	_, err := core.ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
	if err == nil {
		_, err = core.ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
	}
	return err
}
