// Package server builds one process out of all rooms: it reads the
// configuration, opens the database, joins the domain packages to one another
// through the small interfaces that they declare, mounts the transports on the
// public listener and health and metrics on the private one.
//
// A process keeps no state: any number of them may serve one database.
package server
