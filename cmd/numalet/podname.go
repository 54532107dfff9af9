package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/internal/cli"
)

// podFlags are the flags of commands about a pod, which they all find in the same way: by its name or the one on its
// manifest, with the namespace and a container before and behind it.
type podFlags struct {
	namespace, container string
}

func (f *podFlags) add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.namespace, "namespace", "n", "", "the pod's namespace (default, or as in NAMESPACE/POD)")
	flags.StringVarP(&f.container, "container", "c", "", "the container, also as in POD/CONTAINER")
}

// podName is a pod, and a container of it if that is not empty.
type podName struct{ namespace, pod, container string }

func (n podName) String() string { return n.namespace + "/" + n.pod }

// readings returns what an argument may mean, the likeliest first.
func (f *podFlags) readings(arg string) (out []podName, err error) {
	parts := strings.Split(arg, "/")
	if len(parts) > 3 || slices.Contains(parts, "") {
		return nil, fmt.Errorf("%s is no pod: write POD, NAMESPACE/POD, POD/CONTAINER or NAMESPACE/POD/CONTAINER", arg)
	}
	here := f.namespace
	if here == "" {
		here = v1.NamespaceDefault
	}
	switch len(parts) {
	case 1:
		out = []podName{{here, parts[0], ""}}
	case 2:
		out = []podName{{parts[0], parts[1], ""}, {here, parts[0], parts[1]}}
	case 3:
		out = []podName{{parts[0], parts[1], parts[2]}}
	}
	out = slices.DeleteFunc(out, func(n podName) bool {
		return f.namespace != "" && n.namespace != f.namespace ||
			f.container != "" && n.container != "" && n.container != f.container
	})
	if len(out) == 0 && f.container == "" {
		return nil, fmt.Errorf("%s is not in --namespace %s: leave one of the two out", arg, f.namespace)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s is not container %s of --container in --namespace %q: leave one of them out", arg,
			f.container, f.namespace)
	}
	for i := range out {
		if out[i].container == "" {
			out[i].container = f.container
		}
	}
	return out, nil
}

// isPod reports whether the name is a pod's, or the one on the manifest of a static pod.
func isPod(pod *v1.Pod, name string) bool {
	return pod.Name == name || pod.Name == name+"-"+pod.Spec.NodeName && pod.Annotations[sourceOfPod] != "api"
}

// sourceOfPod is the annotation with where a node has a pod from.
const sourceOfPod = "kubernetes.io/config.source"

// find returns the pod that an argument names, and the container if it names one that the pod has.
func (f *podFlags) find(all []v1.Pod, arg string) (*v1.Pod, string, error) {
	readings, err := f.readings(arg)
	if err != nil {
		return nil, "", err
	}
	var near []string
	for _, exact := range []bool{true, false} { // a pod of that very name is meant before one of a manifest
		for _, n := range readings {
			for i := range all {
				pod := &all[i]
				switch {
				case !isPod(pod, n.pod) || exact && pod.Name != n.pod:
				case pod.Namespace != n.namespace:
					near = append(near, pod.Namespace+"/"+pod.Name)
				case n.container == "" || slices.Contains(containersOf(pod), n.container):
					return pod, n.container, nil
				default:
					return nil, "", fmt.Errorf("pod %s/%s has no container %s; it has %s", pod.Namespace, pod.Name,
						n.container, strings.Join(containersOf(pod), ", "))
				}
			}
		}
	}
	if len(near) > 0 {
		slices.Sort(near)
		return nil, "", fmt.Errorf("there is no pod %s, but %s", readings[0],
			strings.Join(slices.Compact(near), ", "))
	}
	return nil, "", fmt.Errorf("there is no pod %s; numalet pods lists those that there are", readings[0])
}

// containersOf lists the names of a pod's containers.
func containersOf(pod *v1.Pod) (out []string) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		out = append(out, c.Name)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		out = append(out, c.Name)
	}
	return out
}

// pods lists the agent's pods.
func (a *asked) pods(ctx context.Context) ([]v1.Pod, error) {
	var list v1.PodList
	err := a.Get(ctx, &list, "pods")
	return list.Items, err
}

// completePods offers the agent's pods, with their namespace if that is not the one of the flag.
func (a *asked) completePods(f *podFlags) cobra.CompletionFunc {
	return cli.Listed(1, func(ctx context.Context, _ []string) (names []string, err error) {
		pods, err := a.pods(ctx)
		for _, pod := range pods {
			name := pod.Name
			if pod.Namespace != v1.NamespaceDefault && pod.Namespace != f.namespace {
				name = pod.Namespace + "/" + name
			}
			names = append(names, name)
		}
		return names, err
	})
}

// oneWord checks that an argument at most is given, and says what it may be.
func oneWord(what, example string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= 1 {
			return nil
		}
		return fmt.Errorf("%d %s are named: name one, such as %s %s", len(args), what, cmd.CommandPath(), example)
	}
}
