package web

import (
	"time"

	"switchboard/internal/todo"
)

// bar is how much of a limit is used, drawn on a track 100 wide.
type bar struct {
	Used, Limit int64
	Width       int64
	Tight       bool // nearly used up
}

func newBar(used, limit int64) bar {
	b := bar{Used: used, Limit: limit}
	if limit > 0 {
		b.Width = min(100, used*100/limit)
	} else if used > 0 {
		b.Width = 100
	}
	if used > 0 && b.Width < 2 {
		b.Width = 2
	}
	b.Tight = b.Width >= 80
	return b
}

// day is a queue's last 24 hours, an hour a column.
type day struct {
	Hours    []hour
	Most     int64
	Made     int64
	Finished int64
	Partial  bool // there was more than could be looked at
}

type hour struct {
	From           time.Time
	X              int64
	Made, Finished int64
	MadeH, DoneH   int64 // heights of 40
}

const chartHeight = 40

func newDay(counted todo.Day) day {
	d := day{Partial: counted.Partial}
	for i, c := range counted.Hours {
		d.Hours = append(d.Hours, hour{From: counted.From.Add(time.Duration(i) * time.Hour), X: int64(i) * 10, Made: c.Created, Finished: c.Finished})
		d.Made, d.Finished, d.Most = d.Made+c.Created, d.Finished+c.Finished, max(d.Most, c.Created, c.Finished)
	}
	for i := range d.Hours {
		h := &d.Hours[i]
		h.MadeH, h.DoneH = height(h.Made, d.Most), height(h.Finished, d.Most)
	}
	return d
}

// Newest is how many todos a partial day was counted from.
func (day) Newest() int64 { return todo.DayMost }

func height(n, most int64) int64 {
	if n == 0 || most == 0 {
		return 0
	}
	return max(2, n*chartHeight/most)
}
