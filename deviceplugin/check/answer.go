package check

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// sameAnswer reports whether two answers have the same content, in whatever order.
func sameAnswer(a, b *v1beta1.AllocateResponse) bool {
	return proto.Equal(inOrder(a), inOrder(b))
}

// inOrder returns a copy with the parts of each answer sorted.
func inOrder(resp *v1beta1.AllocateResponse) *v1beta1.AllocateResponse {
	out := proto.CloneOf(resp)
	for _, a := range out.GetContainerResponses() {
		slices.SortFunc(a.GetMounts(), func(x, y *v1beta1.Mount) int {
			return cmp.Compare(x.GetContainerPath(), y.GetContainerPath())
		})
		slices.SortFunc(a.GetDevices(), func(x, y *v1beta1.DeviceSpec) int {
			return cmp.Compare(x.GetContainerPath(), y.GetContainerPath())
		})
		slices.SortFunc(a.GetCdiDevices(), func(x, y *v1beta1.CDIDevice) int {
			return cmp.Compare(x.GetName(), y.GetName())
		})
	}
	return out
}
