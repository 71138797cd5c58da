//! The answers to one request, as one stream of events.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use minfer::engine::{Event, EventStream};

use crate::counts::{Clock, Times};

/// Several event streams, read in turn. Dropping it cancels all of them.
#[derive(Debug)]
pub struct Answers {
    streams: Vec<Option<(EventStream, Clock)>>,
    times: Arc<Times>,
    /// Who is asked first next time: nobody waits behind a chatty one.
    turn: usize,
}

impl Answers {
    /// Of these streams of one model's; a stream's index is its choice.
    pub fn new(times: Arc<Times>, streams: Vec<EventStream>) -> Answers {
        let mut answers = Answers {
            streams: Vec::new(),
            times,
            turn: 0,
        };
        answers.add(streams);
        answers
    }

    /// More streams, numbered on.
    pub fn add(&mut self, streams: Vec<EventStream>) {
        let streams = streams.into_iter().map(|s| Some((s, Clock::start())));
        self.streams.extend(streams);
    }

    /// How many have not ended, as far as is known.
    pub fn open(&self) -> usize {
        self.streams.iter().flatten().count()
    }

    /// The next event and its choice; `None` after the last of all.
    pub async fn next(&mut self) -> Option<(usize, Event)> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, Event)>> {
        let n = self.streams.len();
        let order = (0..n).cycle().skip(self.turn).take(n);
        let mut open = false;
        for choice in order {
            let Some(slot) = self.streams.get_mut(choice) else {
                continue;
            };
            let Some((stream, clock)) = slot else {
                continue;
            };
            match stream.poll_recv(cx) {
                Poll::Ready(Some(event)) => {
                    clock.note(&event, &self.times);
                    if matches!(event, Event::Done(_) | Event::Error(_)) {
                        *slot = None; // nothing comes after these
                    }
                    self.turn = choice.saturating_add(1).checked_rem(n).unwrap_or(0);
                    return Poll::Ready(Some((choice, event)));
                }
                Poll::Ready(None) => *slot = None,
                Poll::Pending => open = true,
            }
        }
        match open {
            true => Poll::Pending,
            false => Poll::Ready(None),
        }
    }
}
