package mcp

import "switchboard/internal/todo"

// What one side wrote is made plain before the other side's model reads it.
// Payloads, results and artifacts are documents: they keep their value, and
// visibleJSON spells what hides in them.

func showStatus(s *todo.Status) {
	showProgress(s.Progress)
	showQuestion(s.Question)
	s.PublicMessage = prose(s.PublicMessage)
}

func showClaimed(t *todo.Claimed) {
	showFriend(t.FromFriend)
	showExchanges(t.Exchanges)
	showAttempts(t.PriorAttempts)
}

func showDetail(d *todo.Detail) {
	showFriend(d.FromFriend)
	showProgress(d.Progress)
	showQuestion(d.Question)
	showExchanges(d.Exchanges)
	showAttempts(d.Attempts)
}

func showFriend(f *todo.FromFriend) {
	if f == nil {
		return
	}
	f.Identity, f.CallsItself, f.Title, f.Body = label(f.Identity), label(f.CallsItself), label(f.Title), prose(f.Body)
}

func showProgress(p *todo.Progress) {
	if p != nil {
		p.Note = prose(p.Note)
	}
}

func showQuestion(q *todo.Question) {
	if q != nil {
		q.Text = prose(q.Text)
	}
}

func showExchanges(xs []todo.Exchange) {
	for i := range xs {
		showQuestion(&xs[i].Question)
		if a := xs[i].Answer; a != nil {
			a.Text = prose(a.Text)
		}
	}
}

func showAttempts(as []todo.PriorAttempt) {
	for i := range as {
		as[i].Error = prose(as[i].Error)
		showProgress(as[i].Progress)
	}
}
