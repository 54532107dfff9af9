// Package report shows what the rig found: as text for a terminal, and as one HTML file that needs
// nothing beside itself. Its charts are drawn by Chart.js (MIT), which assets/fetch.sh gets, checks
// and keeps here.
package report
