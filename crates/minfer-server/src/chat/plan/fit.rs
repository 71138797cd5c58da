//! A conversation as a prompt, and one that is longer than its context.

use minfer::chat::{Message, RenderRequest, Rendered};

use crate::ApiError;
use crate::chat::{Chat, not_rendered};
use crate::models::Loaded;
use crate::tools::Offer;

/// A conversation, rendered.
pub struct Fitted {
    /// As the template writes it.
    pub rendered: Rendered,
    /// Its token ids.
    pub prompt: Vec<u32>,
    /// How many of its messages are left out.
    pub left_out: usize,
}

/// Renders a conversation. One that is longer than its context loses its oldest turns where it [may](Chat::drops_turns), as few as leave room for an answer: those before one of
/// the user's messages, but what systems say. So Ollama has it; that it begins with the user's words is what templates insist on. The user's last message stays, with all that
/// comes after it: if that is too long by itself, the prompt is.
///
/// # Errors
/// A template that refuses the messages.
pub fn fit(loaded: &Loaded, chat: &Chat) -> Result<Fitted, ApiError> {
    let room = loaded.engine.options().n_ctx;
    let whole = of(loaded, chat, 0)?;
    if !chat.drops_turns || whole.prompt.len() <= room {
        return Ok(whole);
    }
    let starts = starts(&chat.messages);
    let answer = chat.params.generate.n_predict.unwrap_or(room);
    let most = room.saturating_sub(answer.min(room / 4));
    // The earliest start that fits: later ones are shorter.
    let (mut starts, mut fitting) = (&starts[..], None);
    let last = starts.last().copied();
    while let Some(start) = starts.get(starts.len() / 2) {
        let (before, after) = starts.split_at(starts.len() / 2);
        let part = of(loaded, chat, *start)?;
        starts = match part.prompt.len() > most {
            true => after.get(1..).unwrap_or_default(),
            false => {
                fitting = Some(part);
                before
            }
        };
    }
    match (fitting, last) {
        (Some(part), _) => Ok(part),
        (None, Some(last)) => of(loaded, chat, last),
        (None, None) => Ok(whole),
    }
}

/// Where a conversation may begin: at the user's messages, but for one before which nothing is left to drop.
fn starts(messages: &[Message]) -> Vec<usize> {
    let speaks = messages.iter().position(|m| m.role != "system");
    let all = messages.iter().enumerate().skip(speaks.unwrap_or(0));
    let all = all.skip(1).filter(|(_, m)| m.role == "user");
    all.map(|(at, _)| at).collect()
}

/// The conversation from one message on, with what systems said before.
fn of(loaded: &Loaded, chat: &Chat, start: usize) -> Result<Fitted, ApiError> {
    let all = chat.messages.iter().enumerate();
    let kept = all.filter(|(at, m)| *at >= start || m.role == "system");
    let messages: Vec<Message> = kept.map(|(_, m)| m.clone()).collect();
    let left_out = chat.messages.len().saturating_sub(messages.len());
    let request = RenderRequest {
        extra: chat.template_kwargs.clone(),
        tools: chat.tools.as_ref().map(Offer::shown),
        ..chat.turn.request(messages)
    };
    let model = loaded.engine.model();
    let rendered = model.chat_template()?.render_whole(request);
    // What a system says that nobody hears stands behind all that the user says, so nothing behind it is left out.
    let rendered = rendered.map_err(|e| not_rendered(e, &chat.systems, left_out))?;
    Ok(Fitted {
        prompt: model.encode_rendered(&rendered),
        rendered,
        left_out,
    })
}
