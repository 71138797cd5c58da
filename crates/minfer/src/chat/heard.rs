//! What a system says, for templates that have no place for it: the user's next turn begins with it.

use std::collections::HashSet;

use serde_json::json;

use super::tools::joined;
use super::user_text::marks;
use super::{ChatError, ChatTemplate, Content, Message, RenderRequest, Rendered};

impl ChatTemplate {
    /// Renders a conversation so that nothing of it is lost, whatever the template shows: tools and calls become words where it has no place for them
    /// ([`ChatTemplate::taught`]), and a system's message that it refuses or drops stands before the user's words that come next, a blank line between: so
    /// Gemma's templates have it, and llama.cpp does it for all.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`]; a system's message that is not shown, and behind it the user says nothing.
    pub fn render_whole(&self, request: RenderRequest) -> Result<Rendered, ChatError> {
        let hidden = self.hidden(&request);
        let messages = folded(request.messages, &hidden)?;
        self.render(&self.taught(RenderRequest {
            messages,
            ..request
        }))
    }

    /// The places of the system's messages that would not be shown.
    fn hidden(&self, request: &RenderRequest) -> HashSet<usize> {
        let shows = self.shows(request);
        let messages = request.messages.iter().enumerate();
        let systems = messages.filter(|(_, m)| m.role == "system");
        if shows.no_system {
            return systems.map(|(at, _)| at).collect();
        }
        // That the first one is shown where it stands first is known.
        let unsure = systems.filter(|(at, m)| says(m) && (*at > 0 || !shows.system));
        let unsure: Vec<usize> = unsure.map(|(at, _)| at).collect();
        match unsure.is_empty() {
            true => HashSet::new(),
            false => self.unshown(request, &unsure),
        }
    }

    /// Those of some messages that the rendering does not show: it is looked for a mark behind what each of them says.
    fn unshown(&self, request: &RenderRequest, which: &[usize]) -> HashSet<usize> {
        let all = json!([request.messages, request.tools, request.extra]).to_string();
        let Some(mark) = marks(&[&all, self.source()]).next() else {
            return HashSet::new();
        };
        let mut marked = request.clone();
        for at in which {
            if let Some(message) = marked.messages.get_mut(*at) {
                message.append(&format!("{mark}{at}{mark}"));
            }
        }
        // A template may refuse some of them where they stand: what else is wrong with a conversation is told all the same when it is
        // rendered without them.
        let Ok(rendered) = self.render(&self.taught(marked)) else {
            return which.iter().copied().collect();
        };
        let shown: HashSet<&str> = rendered.text.split(mark).skip(1).step_by(2).collect();
        let which = which.iter().copied();
        which
            .filter(|at| !shown.contains(at.to_string().as_str()))
            .collect()
    }
}

/// Whether a message says something.
fn says(message: &Message) -> bool {
    !message.text().trim().is_empty()
}

/// The same conversation, in which what `hidden` messages say is the beginning of the user's next one.
fn folded(messages: Vec<Message>, hidden: &HashSet<usize>) -> Result<Vec<Message>, ChatError> {
    if hidden.is_empty() {
        return Ok(messages);
    }
    let mut out = Vec::with_capacity(messages.len());
    // What waits for the user to speak, and the place of its first message.
    let mut waiting: Option<(usize, Content)> = None;
    for (at, mut message) in messages.into_iter().enumerate() {
        if hidden.contains(&at) {
            let said = says(&message).then_some(message.content).flatten();
            waiting = match (waiting, said) {
                (Some((first, before)), Some(said)) => {
                    Some((first, joined(Some(before), said, false)))
                }
                (None, Some(said)) => Some((at, said)),
                (waiting, None) => waiting,
            };
            continue;
        }
        if message.role == "user"
            && let Some((_, said)) = waiting.take()
        {
            let own = message.content.take();
            let own = own.unwrap_or_else(|| Content::Text(String::new()));
            message.content = Some(joined(Some(said), own, false));
        }
        out.push(message);
    }
    match waiting {
        Some((message, _)) => Err(ChatError::Unheard { message }),
        None => Ok(out),
    }
}
