"""Defines the chat templates of model families: the text around the task and before the answer.

    split("meta-chat")        # ("[INST] ", " [/INST]")

Names and texts are RULER's; `sheared_llama-chat` is the one huang2024 used for both Sheared-LLaMA models. Of that
paper's other models RWKV has its own and the rest, instruction-tuned RecurrentGemma too, read the bare task: `base`.
"""

from __future__ import annotations

from levelfield.spec import UserError, closest

TEMPLATES: dict[str, str] = {
    "base": "{task}",
    "meta-chat": "[INST] {task} [/INST]",
    "vicuna-chat": "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to the user's questions. USER: {task} ASSISTANT:",
    "lwm-chat": "You are a helpful assistant. USER: {task} ASSISTANT: ",
    "command-r-chat": "<BOS_TOKEN><|START_OF_TURN_TOKEN|><|USER_TOKEN|>{task}<|END_OF_TURN_TOKEN|>"
    "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    "chatglm-chat": "[gMASK]sop<|user|> \n {task}<|assistant|> \n ",
    "RWKV": "User: hi\n\nAssistant: Hi. I am your assistant and I will provide expert full response in full details. "
    "Please feel free to ask any question and I will always answer it\n\nUser: {task}\n\nAssistant:",
    "Phi3": "<|user|>\n{task}<|end|>\n<|assistant|>\n",
    "meta-llama3": "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{task}<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "jamba": "<|startoftext|><|bom|><|system|> <|eom|><|bom|><|user|> {task}<|eom|><|bom|><|assistant|>",
    "nemotron5-instruct": "<SPECIAL_10>System\n\n<SPECIAL_11>User\n{task}\n<SPECIAL_11>Assistant\n",
    "sheared_llama-chat": "You are a helpful assistant. Write a response that appropriately completes the request.\n\n"
    "### Input:\n{task}\n\n### Response:",
    "qwen2_instruct": "You are a helpful assistant. USER: {task} ASSISTANT: ",
}


def split(template: str) -> tuple[str, str]:
    """Splits a template into the text before the task and after it. Raises UserError for an unknown name."""
    if template not in TEMPLATES:
        raise UserError(f"There is no template '{template}': {closest(template, list(TEMPLATES))}")
    before, _, after = TEMPLATES[template].partition("{task}")
    return before, after
