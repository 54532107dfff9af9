package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"strings"
	"text/tabwriter"

	"github.com/numalet/numalet/test/bench/managers"
)

// managers measures the resource managers by themselves.
func (f *figures) managers(ctx context.Context) error {
	for _, part := range []struct {
		name    string
		measure func() (*managers.Table, error)
	}{
		{"merging hints", managers.Merge},
		{"choosing CPUs", managers.CPUs},
		{"devices", func() (*managers.Table, error) { return managers.Devices(ctx) }},
		{"admissions", func() (*managers.Table, error) { return managers.Admissions(ctx) }},
		{"waking", func() (*managers.Table, error) { return managers.Wakes(ctx) }},
	} {
		progress("%s", part.name)
		table, err := part.measure()
		if err != nil {
			return fmt.Errorf("measure %s: %w", part.name, err)
		}
		f.tables = append(f.tables, table)
		maps.Copy(f.values, table.Values)
	}
	return nil
}

// printTables writes the managers' tables for people.
func (f *figures) printTables(w io.Writer) {
	for _, table := range f.tables {
		fmt.Fprintf(w, "\n%s\n%s\n\n", strings.ToUpper(table.Title), table.Note)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, strings.Join(table.Columns, "\t"))
		for _, row := range table.Rows {
			fmt.Fprintln(t, strings.Join(row, "\t"))
		}
		_ = t.Flush() // a terminal that is gone needs no table
	}
}
