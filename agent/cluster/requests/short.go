package requests

import (
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/oneline"
)

// Short returns in one line what the API server, or an admission webhook behind it, says is wrong:
// it comes into the log, and into a pod's status. The whole is logged at V(4). Its kind stays.
func Short(err error) error {
	return oneline.Logged(klog.Background(), "the API server", err)
}
