//! The two ends of a request's stream of events.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::request::Event;

/// The events of one request, in order. Dropping it cancels the request within one step.
#[derive(Debug)]
pub struct EventStream {
    events: Receiver<Event>,
    listener: Arc<Listener>,
}

/// Who listens: alive as long as the stream is.
#[derive(Debug, Default)]
struct Listener {
    /// The task that waits for the next event, if one does ([`EventStream::poll_recv`]).
    waker: Mutex<Option<Waker>>,
}

/// The engine's end.
#[derive(Clone, Debug)]
pub(super) struct Events {
    /// There until this end is dropped.
    events: Option<Sender<Event>>,
    listener: Weak<Listener>,
}

/// Both ends.
pub(super) fn stream() -> (Events, EventStream) {
    let (sender, events) = channel();
    let listener = Arc::new(Listener::default());
    let engine = Events {
        events: Some(sender),
        listener: Arc::downgrade(&listener),
    };
    (engine, EventStream { events, listener })
}

impl Events {
    /// Says something; `false` if nobody listens any more.
    pub fn send(&self, event: Event) -> bool {
        let sent = self.events.as_ref().is_some_and(|e| e.send(event).is_ok());
        self.wake();
        sent
    }

    /// Whether nobody listens any more.
    pub fn is_closed(&self) -> bool {
        self.listener.strong_count() == 0
    }

    fn wake(&self) {
        if let Some(listener) = self.listener.upgrade()
            && let Some(waker) = listener.waker().take()
        {
            waker.wake();
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // First the end, then the news of it.
        self.events = None;
        self.wake();
    }
}

impl Listener {
    fn waker(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// The next event for a task, which is woken when one comes; `Ready(None)` after the last. Of several tasks
    /// only the one that asked last is woken.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if let Ok(event) = self.events.try_recv() {
            return Poll::Ready(Some(event));
        }
        *self.listener.waker() = Some(cx.waker().clone());
        // Again: one may have come before the waker was there.
        match self.events.try_recv() {
            Ok(event) => Poll::Ready(Some(event)),
            Err(TryRecvError::Empty) => Poll::Pending,
            Err(TryRecvError::Disconnected) => Poll::Ready(None),
        }
    }
}

impl Iterator for EventStream {
    type Item = Event;
    fn next(&mut self) -> Option<Event> {
        self.recv()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_is_woken_by_an_event_and_by_the_end() {
        let woken = Arc::new(Counted(AtomicUsize::new(0)));
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        let (engine, mut stream) = stream();
        let event = || Event::Prompt { done: 1, total: 2 };
        assert!(stream.poll_recv(&mut cx).is_pending());
        assert!(engine.send(event()));
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(matches!(stream.poll_recv(&mut cx), Poll::Ready(Some(_))));
        assert!(engine.send(event()), "nobody waits: nobody is woken");
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(matches!(stream.poll_recv(&mut cx), Poll::Ready(Some(_))));
        assert!(stream.poll_recv(&mut cx).is_pending());
        drop(engine);
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
        assert!(matches!(stream.poll_recv(&mut cx), Poll::Ready(None)));
    }

    #[test]
    fn a_dropped_stream_is_closed() {
        let (engine, stream) = stream();
        assert!(!engine.is_closed());
        drop(stream);
        assert!(engine.is_closed() && !engine.send(Event::Prompt { done: 0, total: 1 }));
    }
}
