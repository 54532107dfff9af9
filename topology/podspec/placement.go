package podspec

import (
	"cmp"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology"
)

// Annotations by which a pod asks for a placement of its own. Whoever does not know them ignores
// them.
const (
	// AnnotationPolicy is a topology manager policy, one that the node lets pods choose.
	AnnotationPolicy = "numalet.io/topology-policy"
	// AnnotationScope is a topology manager scope.
	AnnotationScope = "numalet.io/topology-scope"
	// AnnotationStrategy is a NUMA allocation strategy.
	AnnotationStrategy = "numalet.io/numa-allocation"
)

// PlacementAnnotations are those of them that the pod has, in order.
func PlacementAnnotations(pod *v1.Pod) (names []string) {
	for _, name := range []string{AnnotationPolicy, AnnotationScope, AnnotationStrategy} {
		if pod.Annotations[name] != "" {
			names = append(names, name)
		}
	}
	return names
}

// Rules are the node's with what the pod asks for in its annotations. The error names the
// annotation; the rules are then the node's.
func Rules(pod *v1.Pod, node topology.Rules) (topology.Rules, error) {
	if len(pod.Annotations) == 0 {
		return node, nil
	}
	var asked topology.Asked
	if err := cmp.Or(
		annotation(pod, AnnotationPolicy, &asked.Policy, topology.ParsePolicy),
		annotation(pod, AnnotationScope, &asked.Scope, topology.ParseScope),
		annotation(pod, AnnotationStrategy, &asked.Strategy, topology.ParseStrategy),
	); err != nil {
		return node, err
	}
	rules, err := node.For(asked)
	if err != nil {
		err = fmt.Errorf("annotation %s: %w", AnnotationPolicy, err)
	}
	return rules, err
}

// annotation reads one into what is asked, unless it is missing or empty.
func annotation[T any](
	pod *v1.Pod, name string, into *T, parse func(string) (T, error),
) error {
	text := pod.Annotations[name]
	if text == "" {
		return nil
	}
	value, err := parse(text)
	if err != nil {
		return fmt.Errorf("annotation %s: %w", name, err)
	}
	*into = value
	return nil
}
