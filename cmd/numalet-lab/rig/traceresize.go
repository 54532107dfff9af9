package rig

import (
	"errors"
	"fmt"
	"time"
)

// size reads what pods of a template ask for after a resize.
func (t *traceReader) size(line traceLine) error {
	of, known := t.templates[line.Template]
	if _, twice := t.sizes[line.Size]; !known || twice {
		return fmt.Errorf("no line before says what template %q is, or the size is there twice", line.Template)
	}
	shape, err := t.site.shape(line.Size, line.PodSpec)
	if err != nil {
		return err
	}
	shape.Pod.Annotations = t.out.Shapes[of].Pod.Annotations
	if err := t.out.Shapes[of].checkSize(shape); err != nil {
		return err
	}
	t.sizes[line.Size] = len(t.out.Sizes)
	t.out.Sizes = append(t.out.Sizes, Size{shape, of})
	return nil
}

// resizes reads the resizes of a pod of the shape.
func (t *traceReader) resizes(lines []traceResize, shape int) (out []Resize, err error) {
	if len(lines) > maxResizes {
		return nil, fmt.Errorf("it is resized %d times; at most %d are allowed", len(lines), maxResizes)
	}
	last := time.Duration(0)
	for _, line := range lines {
		at, known := t.sizes[line.Size]
		if !known || t.out.Sizes[at].Of != shape {
			return nil, fmt.Errorf("resizes: no line before says what size %q of its template is", line.Size)
		}
		after, err := seconds("after", line.After)
		switch {
		case err != nil:
			return nil, fmt.Errorf("resizes: %w", err)
		case after < last:
			return nil, errors.New("resizes: sort them by time")
		}
		last = after
		out = append(out, Resize{After: after, Size: at})
	}
	return out, nil
}
