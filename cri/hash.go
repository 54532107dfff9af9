package cri

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/dump"
)

// ContainerHash is the value of AnnotationHash for a container spec, lower case hex. It covers the
// name and the image only: a change of anything else does not restart a container. The
// value is the kubelet's, so that either agent recognises what the other started.
func ContainerHash(container *v1.Container) string {
	// encoding/json writes map keys in sorted order and cannot fail on strings.
	text, _ := json.Marshal(map[string]string{"name": container.Name, "image": container.Image})
	sum := fnv.New32a()
	fmt.Fprint(sum, dump.ForHash(text))
	return strconv.FormatUint(uint64(sum.Sum32()), 16)
}
