package todo

import "github.com/google/uuid"

// Topics are those of [postgres.Wake] under which there is a hint when something
// that this human sees has changed: anything of theirs that another domain's commit
// touched, the queues' becoming ready, and the todos of the lines. A human's own
// todos lie in the line of the human's id.
func Topics(owner uuid.UUID, queues []string, lines []uuid.UUID) []string {
	topics := make([]string, 0, 1+len(queues)+len(lines))
	topics = append(topics, ownerTopic(owner))
	for _, q := range queues {
		topics = append(topics, lane{owner, q}.topic())
	}
	for _, l := range lines {
		topics = append(topics, lineTopic(l))
	}
	return topics
}
