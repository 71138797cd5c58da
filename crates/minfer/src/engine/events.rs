//! The two ends of a request's stream of events.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::request::Event;

/// The events of one request, in order. Dropping it cancels the request within one step.
#[derive(Debug)]
pub struct EventStream {
    events: Receiver<Event>,
    _listening: Arc<()>,
}

/// The engine's end.
#[derive(Clone, Debug)]
pub(super) struct Events {
    events: Sender<Event>,
    listening: Weak<()>,
}

/// Both ends.
pub(super) fn stream() -> (Events, EventStream) {
    let (sender, events) = channel();
    let token = Arc::new(());
    let listening = Arc::downgrade(&token);
    (
        Events {
            events: sender,
            listening,
        },
        EventStream {
            events,
            _listening: token,
        },
    )
}

impl Events {
    /// Says something; `false` if nobody listens any more.
    pub fn send(&self, event: Event) -> bool {
        self.events.send(event).is_ok()
    }

    /// Whether nobody listens any more.
    pub fn is_closed(&self) -> bool {
        self.listening.strong_count() == 0
    }
}

impl EventStream {
    /// The next event, waited for; `None` after the last.
    pub fn recv(&self) -> Option<Event> {
        self.events.recv().ok()
    }

    /// The next event, if it is there.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`] if it is not, [`TryRecvError::Disconnected`] after the last.
    pub fn try_recv(&self) -> Result<Event, TryRecvError> {
        self.events.try_recv()
    }

    /// The next event, waited for so long.
    ///
    /// # Errors
    /// [`RecvTimeoutError::Timeout`] if none came, [`RecvTimeoutError::Disconnected`] after the last.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Event, RecvTimeoutError> {
        self.events.recv_timeout(timeout)
    }
}

impl Iterator for EventStream {
    type Item = Event;
    fn next(&mut self) -> Option<Event> {
        self.recv()
    }
}
