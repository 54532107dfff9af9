package cri

import (
	"encoding/json"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/checksum"
)

// ContainerHash is the value of AnnotationHash for a container spec, lower case hex. It covers the
// name and the image only: a change of anything else does not restart a container. The
// value is the kubelet's, so that either agent recognises what the other started.
func ContainerHash(container *v1.Container) string {
	// encoding/json writes map keys in sorted order and cannot fail on strings.
	text, _ := json.Marshal(map[string]string{"name": container.Name, "image": container.Image})
	return strconv.FormatUint(checksum.Of(text), 16)
}
