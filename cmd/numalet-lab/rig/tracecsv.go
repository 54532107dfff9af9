package rig

import (
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A trace in CSV has a header and one line per pod that arrives or departs:
//
//	at,pod,lifetime,cpu,memory,gpu
//	0.5,job-1,3600,8,32Gi,2
//	2,job-2,,2,1Gi,
//	70,job-2,depart,,,
//
// "at" and "pod" are required. "lifetime" is in seconds, empty for a pod that departs on a line of
// its own, or "depart" on that line. All other columns are resources: the limits of the pod's one
// container. Fields must not contain line breaks.

// csvLine reads one line; it returns nil for the header.
func (t *traceReader) csvLine(text string) (*traceLine, error) {
	fields, err := csv.NewReader(strings.NewReader(text)).Read()
	if err != nil {
		if parse, ok := errors.AsType[*csv.ParseError](err); ok {
			err = parse.Err
		}
		return nil, fmt.Errorf("neither JSON nor CSV: %w", err)
	}
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	if t.columns == nil {
		return nil, t.setColumns(fields)
	}
	if len(fields) != len(t.columns) {
		return nil, fmt.Errorf("%d fields, and the header has %d (%s)", len(fields), len(t.columns),
			strings.Join(t.columns, ","))
	}
	line := &traceLine{}
	limits := map[string]Text{}
	departs, pod := false, ""
	for i, column := range t.columns {
		switch value := fields[i]; column {
		case "at":
			line.At, err = number(column, value)
		case "pod":
			pod = value
		case "lifetime":
			if departs = value == "depart"; !departs && value != "" {
				line.Lifetime, err = number(column, value)
			}
		default:
			if value != "" && value != "0" {
				limits[column] = Text(value)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	if departs {
		line.Depart = pod
		return line, nil
	}
	line.Arrive = pod
	line.Containers = []ContainerSpec{{Limits: limits}}
	return line, nil
}

func (t *traceReader) setColumns(names []string) error {
	for i, name := range names {
		if name == "" || slices.Contains(names[:i], name) {
			return fmt.Errorf("column %d of the header, %q, is empty or there twice", i+1, name)
		}
	}
	for _, name := range []string{"at", "pod"} {
		if !slices.Contains(names, name) {
			return fmt.Errorf("the first line is neither JSON ({...}) nor a header with the "+
				"column %q; a header looks like at,pod,lifetime,cpu,memory", name)
		}
	}
	t.columns = names
	return nil
}

func number(column, value string) (*float64, error) {
	n, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return nil, fmt.Errorf("%s: %q is not a number of seconds", column, value)
	}
	return &n, nil
}
