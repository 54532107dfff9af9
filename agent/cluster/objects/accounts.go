package objects

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/agent/cluster/requests"
)

// ServiceAccount reads the pod's service account. It is not cached: the caller keeps what follows
// from it.
func (o *Objects) ServiceAccount(ctx context.Context, pod *v1.Pod) (*v1.ServiceAccount, error) {
	ctx, cancel := context.WithTimeout(ctx, o.cfg.Wait)
	defer cancel()
	account, err := o.cfg.Client.CoreV1().ServiceAccounts(pod.Namespace).
		Get(ctx, pod.Spec.ServiceAccountName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read service account: %w", requests.Short(err))
	}
	return account, nil
}
