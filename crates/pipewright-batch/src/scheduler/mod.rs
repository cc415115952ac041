//! The scheduler: a pure state machine. Events in, decisions out, no system call, no clock.
