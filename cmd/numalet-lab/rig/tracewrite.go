package rig

import (
	"bufio"
	"encoding/json"
	"io"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// WriteTrace writes a stream as a trace, with the amounts as computed for the site.
func WriteTrace(w io.Writer, s Stream) error {
	out := bufio.NewWriter(w)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for _, shape := range s.Shapes {
		err := encoder.Encode(traceLine{Template: shape.Name, PodSpec: specOf(shape)})
		if err != nil {
			return err
		}
	}
	for _, size := range s.Sizes {
		line := traceLine{Size: size.Name, Template: s.Shapes[size.Of].Name, PodSpec: specOf(size.Shape)}
		if err := encoder.Encode(line); err != nil {
			return err
		}
	}
	count := make([]int, len(s.Shapes))
	for _, a := range s.Arrivals {
		count[a.Shape]++
		name := s.Shapes[a.Shape].Name
		line := traceLine{
			Template: name, At: new(a.At.Seconds()), Arrive: name + "-" + strconv.Itoa(count[a.Shape]),
		}
		if a.Lifetime > 0 {
			line.Lifetime = new(a.Lifetime.Seconds())
		}
		for _, r := range a.Resizes {
			line.Resizes = append(line.Resizes, traceResize{r.After.Seconds(), s.Sizes[r.Size].Name})
		}
		if err := encoder.Encode(line); err != nil {
			return err
		}
	}
	return out.Flush()
}

// specOf returns what the pod and its containers ask for, in full.
func specOf(shape Shape) PodSpec {
	pod := shape.Pod
	specs := func(list []v1.Container) (out []ContainerSpec) {
		for _, c := range list {
			spec := ContainerSpec{
				Limits: texts(c.Resources.Limits), Requests: texts(c.Resources.Requests),
			}
			for _, uses := range c.Resources.Claims {
				spec.Claims = append(spec.Claims, uses.Name)
			}
			if c.RestartPolicy != nil {
				spec.RestartPolicy = string(*c.RestartPolicy)
			}
			out = append(out, spec)
		}
		return slices.Clip(out)
	}
	var whole *PodResources
	if r := pod.Spec.Resources; r != nil {
		whole = &PodResources{Limits: texts(r.Limits), Requests: texts(r.Requests)}
	}
	return PodSpec{
		Annotations: pod.Annotations, Resources: whole,
		InitContainers: specs(pod.Spec.InitContainers), Containers: specs(pod.Spec.Containers),
		Claims: shape.Claims,
	}
}

func texts(list v1.ResourceList) map[string]Text {
	out := map[string]Text{}
	for name, q := range list {
		out[string(name)] = Text(q.String())
	}
	return out
}
